// SPDX-License-Identifier: Apache-2.0
// Numbers as the report prints them: four significant digits, units of 10^3 (bytes, FLOP) or 2^10 (lengths).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tilescope {

/// "4.362 GB", "201.3 MB", "512 B"; GB = 10^9 bytes.
std::string format_bytes(double bytes);
/// "2.20 TFLOP"; a multiply-add is 2 FLOP.
std::string format_flops(double flops);
/// "121.4 G": a plain number with a prefix of 10^3.
std::string format_count(double count);
/// "4.36x", "0.998x", "1024x"
std::string format_ratio(double ratio);
/// "512", "4K", "128K": lengths, where a power of two allows it.
std::string format_length(std::int64_t length);
/// "50 MiB", "512 KiB"
std::string format_capacity(std::int64_t bytes);
/// "1.83 ms", "12.4 s"
std::string format_seconds(double seconds);
/// Four significant digits; scientific below 1e-3 and from 1e6 on, "nan" and "inf" by name.
std::string format_number(double value);

/// Of an axis: no exponent, with a prefix of 10^3 from a million on: "0.0005", "20", "5 M".
std::string format_tick(double value);

/// A demangled kernel name without its arguments, and without what makes it longer than a table can show.
std::string short_kernel_name(const std::string& name);

/// A tick's label without the zeros that four significant digits gave it: "2.5 GB" for "2.500 GB".
std::string short_tick(std::string label);

/// Ticks of a logarithmic axis that covers [low, high], labelled by `format`: decades, with 2 and 5 between
/// them where they are few. @throws BadInput unless the range is positive and finite
std::vector<std::pair<std::string, double>> logarithmic_ticks(double low, double high,
                                                              std::string (*format)(double));
/// Four to seven ticks at round values over [0, high]. @throws BadInput unless `high` is positive and finite
std::vector<std::pair<std::string, double>> linear_ticks(double high, std::string (*format)(double));

}  // namespace tilescope
