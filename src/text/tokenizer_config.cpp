#include "tessera/text/tokenizer_config.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "tessera/text/field.h"

namespace tessera {
namespace {

// Reads "<s>", {"content": "<s>", …} or null.
Result<std::string> read_token_text(const Field& field) {
  if (field.absent()) return std::string();
  if (field.json().is_object()) return field.member("content").string();
  if (!field.json().is_string()) return field.invalid("accepted: a string, an object with \"content\", or null");
  return field.string();
}

Result<std::optional<bool>> read_flag(const Field& field) {
  if (field.absent()) return std::optional<bool>();
  return std::optional<bool>(TRY(field.boolean_or(false)));
}

Status read_templates(const Field& field, std::vector<TokenizerConfig::NamedTemplate>& out) {
  if (field.absent()) return ok_status();
  if (field.json().is_string()) {
    std::string source = TRY(field.string());
    out.push_back({"default", std::move(source)});
    return ok_status();
  }
  if (!field.json().is_array()) {
    return field.invalid("accepted: a string, or an array of {\"name\": …, \"template\": …}");
  }
  for (const Field& item : TRY(field.elements())) {
    std::string name = TRY(item.member("name").string());
    std::string source = TRY(item.member("template").string());
    out.push_back({std::move(name), std::move(source)});
  }
  return ok_status();
}

// Puts the templates in `by` at the front of `templates`, and removes old templates with the same names.
void replace_templates(std::vector<TokenizerConfig::NamedTemplate>& templates,
                       std::vector<TokenizerConfig::NamedTemplate> by) {
  for (const TokenizerConfig::NamedTemplate& entry : by)
    std::erase_if(templates, [&](const TokenizerConfig::NamedTemplate& old) { return old.name == entry.name; });
  templates.insert(templates.begin(), std::make_move_iterator(by.begin()), std::make_move_iterator(by.end()));
}

// Returns the file's text; nothing if the file does not exist.
Result<std::optional<std::string>> read_if_present(const std::string& path) {
  Result<std::string> text = read_text_file(path);
  if (text.ok()) return std::optional<std::string>(*std::move(text));
  if (text.status().code() == StatusCode::kNotFound) return std::optional<std::string>();
  return std::move(text).status();
}

// Reads chat_template.json, in which a model that reads images may have its template. The file may be missing.
Status read_processor_templates(const std::string& path, std::vector<TokenizerConfig::NamedTemplate>& out) {
  const auto text = TRY(read_if_present(path));
  if (!text) return ok_status();
  const Json json = TRY(Json::parse(*text, path));
  if (!json.is_object()) return Field(path, "the document", &json).invalid("accepted: an object");
  return read_templates(Field(path, "chat_template", json.find("chat_template")), out);
}

}  // namespace

Result<TokenizerConfig> TokenizerConfig::load(const std::string& directory) {
  TokenizerConfig config;
  const std::string path = directory + "/tokenizer_config.json";
  if (const auto text = TRY(read_if_present(path))) {
    const Json json = TRY(Json::parse(*text, path));
    if (!json.is_object()) return Field(path, "the document", &json).invalid("accepted: an object");
    const auto field = [&](const char* key) { return Field(path, key, json.find(key)); };
    config.bos_token = TRY(read_token_text(field("bos_token")));
    config.eos_token = TRY(read_token_text(field("eos_token")));
    config.pad_token = TRY(read_token_text(field("pad_token")));
    config.unk_token = TRY(read_token_text(field("unk_token")));
    config.add_bos_token = TRY(read_flag(field("add_bos_token")));
    config.add_eos_token = TRY(read_flag(field("add_eos_token")));
    config.legacy = TRY(read_flag(field("legacy")));
    if (const Json* added = json.find("added_tokens_decoder")) config.added_tokens = *added;
    TRY(read_templates(field("chat_template"), config.chat_templates));
  }
  if (auto text = TRY(read_if_present(directory + "/chat_template.jinja"))) {
    replace_templates(config.chat_templates, {{"default", *std::move(text)}});
  } else {
    std::vector<NamedTemplate> beside;
    TRY(read_processor_templates(directory + "/chat_template.json", beside));
    replace_templates(config.chat_templates, std::move(beside));
  }
  return config;
}

const std::string* TokenizerConfig::find_template(std::string_view name) const {
  const auto it = std::find_if(chat_templates.begin(), chat_templates.end(),
                               [&](const NamedTemplate& entry) { return entry.name == name; });
  return it == chat_templates.end() ? nullptr : &it->source;
}

}  // namespace tessera
