// SPDX-License-Identifier: Apache-2.0
// What CUPTI's result codes mean and what to do about them. Needs no CUDA header.
#pragma once

#include <stdexcept>
#include <string>

#include "common/errors.hpp"

namespace tilescope {

/// This machine, or its present state, gives no hardware counters: no permission, held by another client, ...
/// The message says what would help.
class CountersUnavailable : public MachineLacks {
 public:
  CountersUnavailable(int code, const std::string& sentence) : MachineLacks(sentence), code_(code) {}
  int code() const { return code_; }  // a CUptiResult

 private:
  int code_;
};

/// A CUPTI call that failed although the machine has counters to give.
class CuptiError : public std::runtime_error {
 public:
  CuptiError(int code, const std::string& sentence) : std::runtime_error(sentence), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

/// "CUPTI_ERROR_HARDWARE_BUSY (26)"
std::string cupti_code_name(int code);

/// What a user can do about a code; empty where the code names no cause outside the program.
std::string cupti_advice(int code);

/// @param call the function that returned `code`, for the message
/// @throws CountersUnavailable where cupti_advice has something to say, CuptiError for any other failure
void check_cupti(int code, const char* call);

}  // namespace tilescope
