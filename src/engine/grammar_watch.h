// Limits on what xgrammar, which has none, may take of a thread, and its complaints. Private to grammar.cpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/base/status.h"

namespace tessera {

class GrammarWatch {
 public:
  // Seconds of the thread's own time, from now on.
  explicit GrammarWatch(double limit_s);

  // Runs `work`, which calls xgrammar on this thread. Whatever comes of it, exceptions and the end of its time
  // included, comes back as a Status; those are invalid_argument.
  Status run(const std::function<Status()>& work);
  // What xgrammar has warned of.
  const std::vector<std::string>& warnings() const { return warnings_; }

  // Called by xgrammar's hooks.
  static void warn(const std::string& message);
  static void check_time();

 private:
  double limit_s_;
  double end_s_;
  int calls_unread_ = 0;
  std::vector<std::string> warnings_;
};

}  // namespace tessera
