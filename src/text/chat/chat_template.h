// A chat template is a Jinja program that comes with a model and turns messages into the model's prompt text.
//
//   ChatTemplate chat = TRY(ChatTemplate::parse(*config.find_template()));
//   RenderOptions options;
//   options.add_generation_prompt = true;
//   std::string prompt = TRY(chat.render(messages, options));
//   std::vector<TokenId> ids = TRY(tokenizer.encode(prompt, {.add_special_tokens = false}));
//
// The language is Jinja2 as set up by Hugging Face's apply_chat_template: trim_blocks and lstrip_blocks on, loop
// controls, `tojson` without HTML escapes, `raise_exception`, `strftime_now`, and values that templates cannot change.
// Values print as in Python. Unsupported constructs are errors with line and column. They come from parse() if it can
// detect the construct, otherwise from render().
//
// Templates come with models and are not trusted. Nesting, steps, output and value sizes are bounded (TemplateLimits).
// A template can access only its variables.
//
// Threads: a ChatTemplate never changes after parse(); render() may run on several threads at once.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/base/json.h"
#include "tessera/base/status.h"

namespace tessera {

struct TemplateProgram;

// The defaults are far above what conversations need. For example, the steps suffice to handle 64 MB of text. But the
// defaults are also small enough that every template ends within a second.
struct TemplateLimits {
  // The maximum number of steps. A step is an evaluated node, a loop round, a compared or printed element, or 16 bytes
  // of text that are read or written.
  std::int64_t max_steps = 4'000'000;
  std::size_t max_output_bytes = 16 * 1024 * 1024;  // size of the rendered text, and of any intermediate string
};

struct RenderOptions {
  bool add_generation_prompt = false;
  // An array of tool descriptions. Null: the template sees `tools` as none.
  Json tools = {};
  std::string bos_token = {};
  std::string eos_token = {};
  // An object of further variables ("enable_thinking": false, "documents": […]). They take precedence over the
  // variables above.
  Json extra = Json::object();
  // The time that strftime_now() formats, in local time; unset: the time of the call.
  std::optional<std::time_t> now = {};
  TemplateLimits limits = {};
};

class ChatTemplate {
 public:
  // Parses a template. `name` identifies it in errors: "<name>: line 3, column 14: …". Returns invalid_argument for a
  // syntax error, and unimplemented for a valid construct that this interpreter lacks.
  static Result<ChatTemplate> parse(std::string source, std::string name = "chat template");

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // Returns the prompt text. `messages` is an array of objects with "role" and "content" as in the OpenAI API. Returns
  // invalid_argument if the template refused the values (raise_exception) or failed on them, and resource_exhausted if
  // a limit was reached.
  Result<std::string> render(const Json& messages, const RenderOptions& options = {}) const;

  // Returns whether `variable` appears in the template as a word, so that setting it may change the result.
  bool names(std::string_view variable) const;

  // Renders with exactly these variables (an object). Only the built-in functions are predefined.
  Result<std::string> render_variables(const Json& variables, const RenderOptions& options = {}) const;

 private:
  explicit ChatTemplate(std::unique_ptr<const TemplateProgram> program);
  std::unique_ptr<const TemplateProgram> program_;
};

}  // namespace tessera
