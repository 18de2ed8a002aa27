// Reads lines that a person types on a terminal, with editing keys and a history that is kept between runs (libedit).
//
// Threads: one thread uses a LineReader. This class does not handle signals. The program handles Ctrl-C.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "tessera/base/status.h"

namespace tessera::cli {

class LineReader {
 public:
  // Reads `history_file` now and writes it after every line. Creates the file's folder. Only the user can read the
  // file. If `history_file` is "", keeps no history. If the file cannot be read or written, warns once. Does not change
  // a file that is not a history. Precondition: standard input and output are terminals.
  static Result<std::unique_ptr<LineReader>> create(std::string prompt, std::string history_file);
  ~LineReader();

  // Returns the next line without its line break. Returns nothing at the end of the input (Ctrl-D).
  std::optional<std::string> read();

 private:
  struct Impl;
  explicit LineReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Returns the path of the user's history file. If TESSERA_HISTORY is set, the path is its value, which may be empty.
// Otherwise the path is tessera/chat_history in XDG_STATE_HOME or, if that is no absolute path, in ~/.local/state.
// Returns "" if neither of these variables gives a path and no home folder is set.
std::string history_file_of_user();

}  // namespace tessera::cli
