// Limits on what xgrammar, which has none, may take of a thread, and its complaints. Private to grammar.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tessera/base/status.h"

namespace tessera {

class GrammarWatch {
 public:
  // Seconds of the thread's own time, from now on.
  explicit GrammarWatch(double limit_s);

  // Runs `work`, which calls xgrammar on this thread. Exceptions and a passed deadline become invalid_argument.
  Status run(const std::function<Status()>& work);
  // Warnings of xgrammar.
  const std::vector<std::string>& warnings() const { return warnings_; }
  // Checks of the time in run(), those of watches within included: a measure of the work that no machine changes.
  std::int64_t checks() const { return checks_; }

  // Called by xgrammar's hooks.
  static void warn(const std::string& message);
  static void check_time();

 private:
  double limit_s_;
  double end_s_;
  std::int64_t checks_ = 0;
  std::vector<std::string> warnings_;
};

}  // namespace tessera
