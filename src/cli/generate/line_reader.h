// Lines that a person types on a terminal, with editing keys and a history that is kept from run to run (libedit).
//
// Threads: one. Signals are left alone: Ctrl-C is the program's.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "tessera/base/status.h"

namespace tessera::cli {

class LineReader {
 public:
  // Precondition: standard input and output are a terminal. `history_file`: read now and written after every line, for
  // the user alone; its folder is made. "": no history is kept. One that cannot be read or written is one warning, and
  // a file that is no history is left as it is.
  static Result<std::unique_ptr<LineReader>> create(std::string prompt, std::string history_file);
  ~LineReader();

  // The next line without its end; none at the end of the input (Ctrl-D).
  std::optional<std::string> read();

 private:
  struct Impl;
  explicit LineReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// TESSERA_HISTORY, which may be empty; else chat_history in tessera in XDG_STATE_HOME or ~/.local/state; "" where there
// is no home either.
std::string history_file_of_user();

}  // namespace tessera::cli
