// Limits the CPU time that xgrammar takes on a thread, because xgrammar has no limit of its own. Collects the warnings
// of xgrammar. Private to grammar.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tessera/base/status.h"

namespace tessera {

class GrammarWatch {
 public:
  // `limit_s` is the limit in seconds of this thread's CPU time, counted from now.
  explicit GrammarWatch(double limit_s);

  // Runs `work`, which calls xgrammar on this thread. An exception or a passed deadline becomes invalid_argument.
  Status run(const std::function<Status()>& work);
  // Returns the warnings that xgrammar gave.
  const std::vector<std::string>& warnings() const { return warnings_; }
  // Returns the number of time checks in run(), including those of watches that run inside it. This number measures
  // work, and is the same on every machine.
  std::int64_t checks() const { return checks_; }

  // Records a warning; xgrammar's hooks call it.
  static void warn(const std::string& message);
  static void check_time();

 private:
  double limit_s_;
  double end_s_;
  std::int64_t checks_ = 0;
  std::vector<std::string> warnings_;
};

}  // namespace tessera
