#include "tessera/cli/generate/line_reader.h"

#include <histedit.h>
#include <langinfo.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

#include "tessera/base/log.h"

namespace tessera::cli {
namespace {

constexpr int kMaxLines = 1000;

struct EndEditing {
  void operator()(EditLine* editor) const { el_end(editor); }
};
struct EndHistory {
  void operator()(History* history) const { history_end(history); }
};

const char* prompt_of(EditLine* editor) {
  void* prompt = nullptr;
  el_get(editor, EL_CLIENTDATA, &prompt);
  return static_cast<const std::string*>(prompt)->c_str();
}

// Sets a UTF-8 locale, because libedit decodes typed text by the locale, but the program's texts are always UTF-8.
void use_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (std::string_view(nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
}

bool make_folder(const std::string& file) {
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  return !error;
}

}  // namespace

struct LineReader::Impl {
  Impl(std::string given_prompt, std::string given_file)
      : prompt(std::move(given_prompt)), file(std::move(given_file)) {}

  // Loads the history. If libedit did not write the file, the file is not used, because keep() would overwrite it.
  void load() {
    if (file.empty()) return;
    std::error_code error;
    const std::uintmax_t bytes = std::filesystem::file_size(file, error);
    if (error == std::errc::no_such_file_or_directory || (!error && bytes == 0)) return;
    HistEvent event{};
    if (!error && ::history(history.get(), &event, H_LOAD, file.c_str()) >= 0) return;
    log_warn("cli", "{} cannot be read as a history: no lines are kept; TESSERA_HISTORY names another file", file);
    file.clear();
  }

  void keep(const char* line) {
    HistEvent event{};
    ::history(history.get(), &event, H_ENTER, line);
    if (file.empty()) return;
    if (make_folder(file) && ::history(history.get(), &event, H_SAVE, file.c_str()) >= 0) return;
    log_warn("cli", "the history cannot be written to {}; TESSERA_HISTORY names another file", file);
    file.clear();
  }

  std::string prompt;
  std::string file;
  std::unique_ptr<History, EndHistory> history{};
  std::unique_ptr<EditLine, EndEditing> editor{};  // destroyed before the history, which it uses
};

LineReader::LineReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LineReader::~LineReader() = default;

Result<std::unique_ptr<LineReader>> LineReader::create(std::string prompt, std::string history_file) {
  use_utf8();
  auto impl = std::make_unique<Impl>(std::move(prompt), std::move(history_file));
  impl->history.reset(history_init());
  impl->editor.reset(el_init("tessera", stdin, stdout, stderr));
  if (impl->history == nullptr || impl->editor == nullptr)
    return resource_exhausted("no memory for editing lines on the terminal");
  HistEvent event{};
  history(impl->history.get(), &event, H_SETSIZE, kMaxLines);
  history(impl->history.get(), &event, H_SETUNIQUE, 1);
  impl->load();
  EditLine* editor = impl->editor.get();
  el_set(editor, EL_CLIENTDATA, static_cast<void*>(&impl->prompt));
  el_set(editor, EL_PROMPT, prompt_of);
  el_set(editor, EL_EDITOR, "emacs");
  el_set(editor, EL_SIGNAL, 0);
  el_set(editor, EL_HIST, history, impl->history.get());
  el_source(editor, nullptr);  // reads the user's settings in ~/.editrc
  return std::unique_ptr<LineReader>(new LineReader(std::move(impl)));
}

std::optional<std::string> LineReader::read() {
  // Prepares the terminal before the prompt is printed. libedit would do so only after the prompt, and a Ctrl-D typed
  // in between would arrive as an ordinary character.
  el_set(impl_->editor.get(), EL_PREP_TERM, 1);
  int count = 0;
  const char* typed = el_gets(impl_->editor.get(), &count);
  if (typed == nullptr || count <= 0) return std::nullopt;
  std::string line(typed, static_cast<std::size_t>(count));
  while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
  if (line.find_first_not_of(" \t") != std::string::npos) impl_->keep(line.c_str());
  return line;
}

std::string history_file_of_user() {
  if (const char* file = std::getenv("TESSERA_HISTORY"); file != nullptr) return file;
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  if (state != nullptr && *state == '/') return std::string(state) + "/tessera/chat_history";
  if (home != nullptr && *home != '\0') return std::string(home) + "/.local/state/tessera/chat_history";
  return "";
}

}  // namespace tessera::cli
