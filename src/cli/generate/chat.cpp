#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include "tessera/cli/commands.h"
#include "tessera/cli/generate/line_reader.h"
#include "tessera/cli/generate/local_jobs.h"
#include "tessera/cli/generate/sampling_flags.h"
#include "tessera/cli/output.h"
#include "tessera/cli/serve/stop_signal.h"
#include "tessera/cli/session/session.h"
#include "tessera/load/server_events.h"
#include "tessera/server/openai/chat_request.h"
#include "tessera/server/served_model.h"

namespace tessera::cli {
namespace {

constexpr std::string_view kHelp =
    "/reset         forget the conversation, but not the system's message\n"
    "/system TEXT   a new system's message, and a new conversation; without TEXT: none\n"
    "/exit, /quit   end, as Ctrl-D does\n"
    "Ctrl-C stops an answer; what there is of it stays in the conversation.\n";

Json message(std::string_view role, std::string_view content) {
  Json json = Json::object();
  json.set("role", role).set("content", content);
  return json;
}

// Writes the text of one answer to standard output. Reasoning is written only to a terminal, and is dimmed.
class AnswerPrinter {
 public:
  explicit AnswerPrinter(bool terminal) : terminal_(terminal) {}

  Status reasoning(std::string_view text) {
    if (!terminal_ || text.empty()) return ok_status();
    const bool begins = !std::exchange(dimmed_, true);
    return write_output((begins ? "\033[2m" : "") + std::string(text));
  }
  Status content(std::string_view text) {
    if (text.empty()) return ok_status();
    TRY(undim("\n\n"));
    content_ += text;
    return write_output(text);
  }
  Status end() {
    TRY(undim(""));
    return write_output("\n");
  }
  // Returns the whole answer without its reasoning.
  const std::string& text() const { return content_; }

 private:
  Status undim(std::string_view then) {
    if (!std::exchange(dimmed_, false)) return ok_status();
    return write_output("\033[0m" + std::string(then));
  }

  bool terminal_;
  bool dimmed_ = false;
  std::string content_;
};

class Chat {
 public:
  // `lines` reads lines from a terminal. If it is null, standard input is read directly.
  Chat(Engine& engine, const ServedModel& model, const ChatOptions& options, LineReader* lines)
      : model_(model), options_(options), lines_(lines), jobs_(engine), system_(options.system) {
    reset();
  }

  // Stops the current answer. If there is none, prints how to end the chat. Called on the signal's thread.
  void interrupt() {
    const bool answering = answering_;  // read first, because an interrupted answer may end at once
    interrupted_ = true;
    jobs_.wake();
    if (!answering) write_error("\n(Ctrl-D or /exit ends)\n> ");
  }

  Status run() {
    if (terminal_) TRY(write_output("/help lists the commands.\n"));
    std::string line;
    while (next_line(line)) {
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      if (is_end(line)) return ok_status();
      Status status = line.starts_with('/') ? command(line) : say(line);
      if (status.ok()) continue;
      // If a person types, the chat goes on after an error, unless output can no longer be written or the device is
      // lost. In a script any error ends the chat, because the next line may refer to an answer that does not exist.
      if (!terminal_ || status.code() == StatusCode::kDataLoss || status.code() == StatusCode::kDeviceLost)
        return status;
      write_error(status.message() + "\n");
    }
    return terminal_ ? write_output("\n") : ok_status();
  }

 private:
  bool next_line(std::string& line) const {
    if (lines_ == nullptr) return static_cast<bool>(std::getline(std::cin, line));
    std::optional<std::string> typed = lines_->read();
    if (!typed) return false;
    line = *std::move(typed);
    return true;
  }

  static bool is_end(std::string_view line) {
    line = line.substr(0, line.find_last_not_of(" \t\r") + 1);
    return line == "/exit" || line == "/quit";
  }

  void reset() {
    messages_.clear();
    if (!system_.empty()) messages_.push_back(message("system", system_));
  }

  Status command(const std::string& line) {
    const std::size_t space = line.find(' ');
    const std::string name = line.substr(0, space);
    const std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
    if (name == "/help") return write_output(kHelp);
    if (name != "/reset" && name != "/system")
      return invalid_argument(
          fmt::format("\"{}\" is no command; accepted are /reset, /system, /help, /exit, /quit", name));
    if (name == "/system") system_ = rest;
    reset();
    return ok_status();
  }

  // Runs a turn of the user and a turn of the model. Both stay in the conversation, unless the model's turn fails
  // before it has written any content.
  Status say(const std::string& text) {
    messages_.push_back(message("user", text));
    AnswerPrinter printer(terminal_);
    interrupted_ = false;
    answering_ = true;
    const Status status = answer(printer);
    answering_ = false;
    if (!status.ok() && printer.text().empty()) {
      messages_.pop_back();
    } else {
      messages_.push_back(message("assistant", printer.text()));
    }
    return status;
  }

  Status answer(AnswerPrinter& printer) {
    Json body = Json::object();
    body.set("messages", Json(messages_)).set("stream", true);
    set_request_fields(options_.sampling, body);
    ApiResult<ApiJob> job = prepare_chat(model_, body.dump());
    if (!job.ok()) return why(job.error());
    const LocalJobs::Id id = jobs_.start(*std::move(job));
    std::string finish;
    for (bool ended = false; !ended;) {
      for (const LocalJobs::Update& update : jobs_.wait()) {
        if (update.error) {
          TRY(printer.end());
          return why(*update.error);
        }
        TRY(print(update.events, printer, finish));
        ended = update.ended;
      }
      if (interrupted_ && !ended) {
        jobs_.cancel(id);
        ended = true;
      }
    }
    TRY(printer.end());
    if (finish == "length" && terminal_)
      write_error(options_.sampling.max_new_tokens ? "(ended by --max-new-tokens)\n"
                                                   : "(the context is full; /reset begins a new conversation)\n");
    return ok_status();
  }

  static Status print(std::string_view events, AnswerPrinter& printer, std::string& finish) {
    Status status;
    ServerEvents().push(events, [&](std::string_view data) {
      if (status.ok()) status = print_event(data, printer, finish);
    });
    return status;
  }

  static Status print_event(std::string_view data, AnswerPrinter& printer, std::string& finish) {
    const Json event = TRY(Json::parse(data, "an event"));
    const Json& choice = event.find("choices")->as_array().at(0);
    const Json& delta = *choice.find("delta");
    if (const Json* text = delta.find("reasoning_content")) TRY(printer.reasoning(text->as_string()));
    if (const Json* text = delta.find("content")) TRY(printer.content(text->as_string()));
    const Json& reason = *choice.find("finish_reason");
    if (reason.is_string()) finish = reason.as_string();
    return ok_status();
  }

  static Status why(const ApiError& error) {
    if (error.http_status == 503) return device_lost(error.message);
    if (error.code != "context_length_exceeded") return invalid_argument(error.message);
    return resource_exhausted(
        fmt::format("the conversation has become too long: {}; /reset begins a new one", error.message));
  }

  const ServedModel& model_;
  const ChatOptions& options_;
  LineReader* lines_;
  LocalJobs jobs_;
  std::string system_;
  Json::Array messages_;
  std::atomic<bool> interrupted_ = false;
  std::atomic<bool> answering_ = false;
  const bool terminal_ = lines_ != nullptr;
};

}  // namespace

Status run_chat(const ChatOptions& options) {
  EngineOptions engine_options = options.engine;
  engine_options.show_progress = progress_wanted();
  const std::unique_ptr<Engine> engine = TRY(start_engine(engine_options));
  if (engine->tokenizer() == nullptr)
    return not_found("the model has no tokenizer, which a chat needs; --tokenizer-path names one elsewhere");
  const ServerOptions server;
  const ServedModel model = TRY(ServedModel::create(server, *engine));
  if (!model.chat) return not_found(fmt::format("{}; a chat needs one", model.no_chat_reason));
  std::unique_ptr<LineReader> lines;
  if (isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1)
    lines = TRY(LineReader::create("> ", options.no_history ? "" : history_file_of_user()));
  Chat chat(*engine, model, options, lines.get());
  // Without a terminal the signal keeps its default effect and ends the program.
  std::unique_ptr<StopSignal> stop;
  if (isatty(STDIN_FILENO) == 1) stop = TRY(StopSignal::watch({SIGINT}, [&](int) { chat.interrupt(); }));
  return chat.run();
}

}  // namespace tessera::cli
