#include "tessera/text/chat/chat_template.h"

#include <cctype>
#include <utility>

#include "tessera/text/jinja/interpreter.h"
#include "tessera/text/jinja/parser.h"

namespace tessera {

struct TemplateProgram {
  std::unique_ptr<const jinja::Program> parsed;
};

namespace {

// Sets a variable for each member of the object `variables`. Replaces variables that are already set.
Status add_variables(jinja::Interpreter& interpreter, const Json& variables, const std::string& what) {
  if (!variables.is_object()) {
    return invalid_argument(what + " are of type " + std::string(variables.type_name()) + "; accepted: an object");
  }
  for (const auto& [name, value] : variables.as_object()) {
    interpreter.set_variable(name, TRY(jinja::Value::from_json(value)));
  }
  return ok_status();
}

jinja::Budget budget_of(const RenderOptions& options) {
  return {options.limits.max_steps, options.limits.max_output_bytes};
}

}  // namespace

ChatTemplate::ChatTemplate(std::unique_ptr<const TemplateProgram> program) : program_(std::move(program)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::parse(std::string source, std::string name) {
  auto parsed = TRY(jinja::parse_template(std::move(source), std::move(name)));
  return ChatTemplate(std::make_unique<const TemplateProgram>(TemplateProgram{std::move(parsed)}));
}

Result<std::string> ChatTemplate::render(const Json& messages, const RenderOptions& options) const {
  if (!messages.is_array()) {
    return invalid_argument("messages are of type " + std::string(messages.type_name()) + "; accepted: an array");
  }
  jinja::Interpreter interpreter(*program_->parsed, budget_of(options), options.now);
  Json variables = Json::object();
  variables.set("messages", messages)
      .set("tools", options.tools)
      .set("documents", Json())
      .set("add_generation_prompt", options.add_generation_prompt)
      .set("bos_token", options.bos_token)
      .set("eos_token", options.eos_token);
  TRY(add_variables(interpreter, variables, "variables"));
  TRY(add_variables(interpreter, options.extra, "extra variables"));
  return interpreter.render();
}

bool ChatTemplate::names(std::string_view variable) const {
  const std::string_view source = program_->parsed->source.text;
  const auto in_word = [&](std::size_t at) {
    return at < source.size() && (std::isalnum(static_cast<unsigned char>(source[at])) != 0 || source[at] == '_');
  };
  for (std::size_t at = source.find(variable); at != std::string_view::npos; at = source.find(variable, at + 1)) {
    if ((at == 0 || !in_word(at - 1)) && !in_word(at + variable.size())) return true;
  }
  return false;
}

Result<std::string> ChatTemplate::render_variables(const Json& variables, const RenderOptions& options) const {
  jinja::Interpreter interpreter(*program_->parsed, budget_of(options), options.now);
  TRY(add_variables(interpreter, variables, "variables"));
  return interpreter.render();
}

}  // namespace tessera
