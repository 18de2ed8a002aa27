#include "tessera/server/responses/output_item.h"

#include "tessera/server/api_job.h"
#include "tessera/server/responses/encoded_text.h"

namespace tessera {
namespace {

using Kind = OutputItem::Kind;

std::string_view type_of(Kind kind) {
  switch (kind) {
    case Kind::kReasoning: return "reasoning";
    case Kind::kMessage: return "message";
    case Kind::kFunctionCall: return "function_call";
    case Kind::kCustomCall: return "custom_tool_call";
  }
  return "";
}

// Writes an item's beginning: its id, type and status, and, for a call, the function's name and namespace.
void write_head(JsonWriter& json, const OutputItem& item, std::string_view status) {
  json.object().key("id").value(item.id).key("type").value(type_of(item.kind)).key("status").value(status);
  if (!item.is_call()) return;
  json.key("call_id").value(item.call_id).key("name").value(item.name);
  if (!item.space.empty()) json.key("namespace").value(item.space);
}

std::string_view text_key(Kind kind) { return kind == Kind::kFunctionCall ? "arguments" : "input"; }

}  // namespace

std::string make_item_id(Kind kind) {
  switch (kind) {
    case Kind::kReasoning: return make_id("rs_");
    case Kind::kMessage: return make_id("msg_");
    case Kind::kFunctionCall: return make_id("fc_");
    case Kind::kCustomCall: return make_id("ctc_");
  }
  return "";
}

void write_begun_item(JsonWriter& json, const OutputItem& item) {
  write_head(json, item, "in_progress");
  if (item.kind == Kind::kReasoning) json.key("summary").array().end_array();
  if (item.kind == Kind::kMessage) json.key("role").value("assistant").key("content").array().end_array();
  if (item.is_call()) json.key(text_key(item.kind)).value("");
  json.end_object();
}

void write_ended_item(JsonWriter& json, const OutputItem& item, const ItemStyle& style, std::string_view status) {
  write_head(json, item, status);
  if (item.kind == Kind::kReasoning) {
    for (const bool summary : {true, false}) {
      json.key(summary ? "summary" : "content").array();
      if (summary == style.summary) write_part(json, item, style, item.text, "");
      json.end_array();
    }
    if (style.encoded) json.key("encrypted_content").value(encode_text(item.text));
  } else if (item.kind == Kind::kMessage) {
    json.key("role").value("assistant").key("content").array();
    write_part(json, item, style, item.text, item.logprobs);
    json.end_array();
  } else {
    json.key(text_key(item.kind)).value(item.text);
  }
  json.end_object();
}

void write_part(JsonWriter& json, const OutputItem& item, const ItemStyle& style, std::string_view text,
                std::string_view logprobs) {
  json.object();
  if (item.kind == Kind::kReasoning) {
    json.key("type").value(style.summary ? "summary_text" : "reasoning_text").key("text").value(text);
  } else {
    json.key("type").value("output_text").key("text").value(text).key("annotations").array().end_array();
    json.key("logprobs").array();
    if (!logprobs.empty()) json.raw(logprobs);
    json.end_array();
  }
  json.end_object();
}

}  // namespace tessera
