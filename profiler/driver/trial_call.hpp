// SPDX-License-Identifier: Apache-2.0
// A call into a library that may take the process along.
#pragma once

#include <functional>

namespace tilescope {

/// Whether a call returns, tried in a child process, which leaves no core and says nothing.
bool returns_in_child(const std::function<void()>& call);

}  // namespace tilescope
