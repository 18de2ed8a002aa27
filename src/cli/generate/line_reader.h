// Reads lines that a person types on a terminal, with editing keys and a history that is kept between runs (libedit).
//
// Threads: one. Signals are not handled: the program handles Ctrl-C.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "tessera/base/status.h"

namespace tessera::cli {

class LineReader {
 public:
  // Reads `history_file` now and writes it after every line, readable only by the user; creates its folder. "": no
  // history is kept. A file that cannot be read or written causes one warning, and a file that is not a history is not
  // changed. Precondition: standard input and output are terminals.
  static Result<std::unique_ptr<LineReader>> create(std::string prompt, std::string history_file);
  ~LineReader();

  // Returns the next line without its line end; nothing at the end of the input (Ctrl-D).
  std::optional<std::string> read();

 private:
  struct Impl;
  explicit LineReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Returns TESSERA_HISTORY, which may be empty; if it is not set, tessera/chat_history in XDG_STATE_HOME or
// ~/.local/state; "" if there is no home either.
std::string history_file_of_user();

}  // namespace tessera::cli
