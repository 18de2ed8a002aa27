#include "tessera/engine/grammar/grammar_watch.h"

#include <fmt/format.h>

#include <ctime>
#include <exception>
#include <new>
#include <stdexcept>
#include <utility>

namespace tessera {
namespace {

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

struct TimeIsUp : std::exception {
  const char* what() const noexcept override { return "out of time"; }
};

thread_local GrammarWatch* current_watch = nullptr;

}  // namespace

GrammarWatch::GrammarWatch(double limit_s) : limit_s_(limit_s), end_s_(thread_seconds() + limit_s) {}

Status GrammarWatch::run(const std::function<Status()>& work) {
  GrammarWatch* const outer = std::exchange(current_watch, this);
  Status status = [&]() -> Status {
    try {
      return work();
    } catch (const TimeIsUp&) {
      return invalid_argument(fmt::format("it takes longer than {} s; a simpler one is accepted", limit_s_));
    } catch (const std::bad_alloc&) {
      return invalid_argument("it takes more memory than there is; a simpler one is accepted");
    } catch (const std::exception& error) {
      return invalid_argument(error.what());
    } catch (...) {
      return invalid_argument("it cannot be read");
    }
  }();
  current_watch = outer;
  if (outer != nullptr) outer->checks_ += checks_;
  return status;
}

void GrammarWatch::warn(const std::string& message) {
  if (current_watch != nullptr) current_watch->warnings_.push_back(message);
}

void GrammarWatch::check_time() {
  // Reads the clock only at every 256th check, because one reading costs as much as that many checks.
  if (current_watch == nullptr || ++current_watch->checks_ % 256 != 0) return;
  if (thread_seconds() > current_watch->end_s_) throw TimeIsUp();
}

}  // namespace tessera

// xgrammar declares and calls these functions, and the program that links xgrammar must define them. xgrammar calls the
// Log functions because it is built with XGRAMMAR_LOG_CUSTOMIZE, and Checkpoint because of tools/xgrammar.patch.
namespace xgrammar {

// NOLINTBEGIN(readability-identifier-naming): xgrammar calls them by these names
[[noreturn]] void LogFatalImpl(const std::string&, int, const std::string& message) {
  throw std::runtime_error(message);
}
void LogMessageImpl(const std::string&, int, int, const std::string& message) { tessera::GrammarWatch::warn(message); }
void Checkpoint() { tessera::GrammarWatch::check_time(); }
// NOLINTEND(readability-identifier-naming)

}  // namespace xgrammar
