#include "tessera/server/responses/response_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "tessera/server/openai/reasoning_field.h"
#include "tessera/server/responses/response_items.h"
#include "tessera/server/work/request_memory.h"
#include "tessera/server/work/text_work.h"

namespace tessera {
namespace {

// Changes the field that an error names from "messages" to "input". Errors name "messages" if they come from functions
// that other protocols share.
ApiError in_input(ApiError error) {
  constexpr std::string_view kMessages = "messages";
  if (error.param.starts_with(kMessages)) error.param = "input" + error.param.substr(kMessages.size());
  return error;
}

// The items of earlier responses that a request names by their ids. Each of these responses is parsed once. Every item
// is charged as often as it is named, because each reference becomes a copy of it. The charge ends with the object.
class ReferredItems {
 public:
  ReferredItems(const ResponseAsker& asker, MemoryBudget* memory) : asker_(asker), charge_(memory) {}

  // Returns the item that `reference` names by its id. Errors name the reference's "id".
  ApiResult<Json> find(const ApiFields& reference) {
    const std::optional<std::string> id = TRY(reference.string("id"));
    if (!id) return reference.wrong("id", "a string");
    auto item = find_item(*id);
    if (!item.ok()) {
      ApiError error = std::move(item.error());
      error.param = reference.param("id");
      return error;
    }
    return item;
  }

 private:
  struct Item {
    Json json;
    std::int64_t bytes;  // charged for each reference
  };

  ApiResult<Json> find_item(const std::string& id) {
    const auto response = TRY(asker_.store.find_item(id, asker_.owner));
    if (parsed_.insert(response->id).second) TRY(parse(response->turn->output));
    const auto item = items_.find(id);
    if (item == items_.end()) return internal_error(fmt::format("the item {} is not in its response", id));
    TRY(hold(item->second.bytes));
    return item->second.json;
  }

  ApiStatus parse(const std::string& output) {
    TRY(take_on(TextWork::kLarge));
    TRY(hold(reading_bytes(output)));
    Json list = TRY(Json::parse(output, "the stored items"));
    for (Json& item : list.as_array()) {
      const std::int64_t bytes = reading_bytes(item.dump());
      const std::string id = item.find("id")->as_string();
      items_.insert_or_assign(id, Item{std::move(item), bytes});
    }
    return api_ok();
  }

  ApiStatus hold(std::int64_t bytes) { return charge_.set(bytes_ += bytes); }

  const ResponseAsker& asker_;
  MemoryCharge charge_;
  std::int64_t bytes_ = 0;
  std::set<std::string> parsed_;       // ids of responses
  std::map<std::string, Item> items_;  // by their ids
};

Json user_message(std::string_view text) {
  return Json::object({{"type", "message"}, {"role", "user"}, {"content", text}});
}

bool is_reference(const Json& item) { return item_type(item) == "item_reference"; }

// Returns the request's items, which are borrowed from the request or from `made`. A text becomes one message, and each
// reference becomes the item that it names.
ApiResult<const Json*> read_input(const ApiFields& fields, ReferredItems& referred, Json& made) {
  const Json* input = fields.find("input");
  made = Json::array();
  if (input == nullptr) {
    if (fields.find("previous_response_id") == nullptr) return fields.wrong("input", "a string or a list of items");
    return &made;
  }
  if (input->is_string()) {
    made.push_back(user_message(input->as_string()));
    return &made;
  }
  if (!input->is_array()) return fields.wrong("input", "a string or a list of items");
  if (std::ranges::none_of(input->as_array(), is_reference)) return input;
  made = *input;
  for (std::size_t i = 0; i < made.as_array().size(); ++i) {
    Json& item = made.as_array()[i];
    if (!is_reference(item)) continue;
    Json found = TRY(referred.find(ApiFields(item, fmt::format("input[{}].", i))));
    item = std::move(found);
  }
  return &made;
}

// The parsed conversation before the request.
struct History {
  std::shared_ptr<const ConversationTurn> last{};
  std::deque<Json> lists{};  // in order; a deque, because its elements never move and images borrow from them
  MemoryCharge charge{};     // charged while the history is read
};

ApiResult<History> read_history(const ApiFields& fields, const ServedModel& model, const ResponseAsker& asker) {
  History history;
  const std::optional<std::string> id = TRY(fields.string("previous_response_id"));
  if (!id) return history;
  auto found = asker.store.find(*id, asker.owner);
  if (!found.ok()) {
    ApiError error = std::move(found.error());
    error.http_status = 400;
    error.param = "previous_response_id";
    error.code = "previous_response_not_found";
    return error;
  }
  history.last = (*found)->turn;
  if (history.last == nullptr)
    return invalid_field("previous_response_id",
                         fmt::format("the response \"{}\" has not ended, or has failed; accepted: "
                                     "a response that is completed or incomplete",
                                     *id));
  TRY(take_on(TextWork::kLarge));
  history.charge = MemoryCharge(model.memory.get());
  std::int64_t bytes = 0;
  for (const ConversationTurn* turn = history.last.get(); turn != nullptr; turn = turn->before.get()) {
    bytes += reading_bytes(turn->input) + reading_bytes(turn->output);
    if (ApiStatus held = history.charge.set(bytes); !held.ok()) {
      ApiError error = std::move(held.error());
      error.param = "previous_response_id";
      return error;
    }
    history.lists.push_front(TRY(Json::parse(turn->output, "the stored items")));
    history.lists.push_front(TRY(Json::parse(turn->input, "the stored items")));
  }
  return history;
}

// Returns the indices of all user messages except the first user message. A shortened conversation may begin at any of
// these indices.
std::vector<std::size_t> later_turns(const Json::Array& messages) {
  std::vector<std::size_t> turns;
  for (std::size_t i = 0; i < messages.size(); ++i)
    if (*messages[i].find("role") == Json("user")) turns.push_back(i);
  if (!turns.empty()) turns.erase(turns.begin());
  return turns;
}

// Returns the conversation without the turns before index `begin`. Keeps the system and developer messages at the
// front, and the messages from index `begin` on.
Json without_turns(const Json::Array& messages, std::size_t begin) {
  Json kept = Json::array();
  bool leading = true;  // only instructions (system and developer messages) have come so far
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Json& role = *messages[i].find("role");
    leading = leading && (role == Json("system") || role == Json("developer"));
    if (leading || i >= begin) kept.push_back(messages[i]);
  }
  return kept;
}

// Renders the conversation. If `truncates` and there are no images, drops as few of the oldest turns as needed, so that
// the prompt and `answer_tokens` more tokens fit into the context.
ApiResult<ChatPrompt> fit_prompt(const ServedModel& model, Conversation conversation, std::int64_t answer_tokens,
                                 bool truncates) {
  if (!truncates || !conversation.messages.images.empty()) return make_prompt(model, std::move(conversation));
  const auto render_from = [&](std::size_t begin) {
    Conversation part = conversation;
    if (begin > 0) part.messages.list = without_turns(conversation.messages.list.as_array(), begin);
    return make_prompt(model, std::move(part));
  };
  const auto fits = [&](const ChatPrompt& prompt) {
    return std::ssize(prompt.ids) + answer_tokens <= model.context_length;
  };
  ChatPrompt prompt = TRY(render_from(0));
  const std::vector<std::size_t> turns = later_turns(conversation.messages.list.as_array());
  if (fits(prompt)) return prompt;
  // A binary search finds the oldest turn at which the conversation can begin and still fit into the context. If even
  // the last turn alone does not fit, the prompt begins at the last turn.
  std::size_t low = 0;
  std::size_t high = turns.size();
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    ChatPrompt shorter = TRY(render_from(turns[middle]));
    const bool enough = fits(shorter);
    if (enough || middle + 1 == turns.size()) prompt = std::move(shorter);
    if (enough) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return prompt;
}

}  // namespace

ApiResult<ResponsePrompt> read_response_prompt(const ApiFields& fields, const ServedModel& model,
                                               const ToolFields& tools, const ResponseAsker& asker) {
  const ChatTemplate* const chat = template_of(model, tools.tools);
  if (chat == nullptr) return in_input(no_template(model));
  constexpr std::string_view kTexts[] = {"input", "instructions", "tools"};
  TRY(check_written_placeholders(fields, model, kTexts));
  const std::string truncation = TRY(fields.string("truncation")).value_or("disabled");
  if (truncation != "disabled" && truncation != "auto") return fields.wrong("truncation", R"("disabled" or "auto")");

  const History history = TRY(read_history(fields, model, asker));
  ReferredItems referred(asker, model.memory.get());
  Json made;
  const Json& input = *TRY(read_input(fields, referred, made));
  ItemReader reader(kinds_of(model));
  if (const auto instructions = TRY(fields.string("instructions"))) reader.add_instructions(*instructions);
  for (const Json& list : history.lists) TRY(reader.read(list, "previous_response_id"));
  TRY(reader.read(input, "input"));
  if (!asker.task.empty()) TRY(reader.read(Json::Array{user_message(asker.task)}, "input"));
  Conversation conversation{.messages = reader.take(), .tools = tools, .chat = chat};
  // Accepts an empty input, because clients probe the server with one.
  if (conversation.messages.list.as_array().empty())
    conversation.messages.list.push_back(Json::object({{"role", "user"}, {"content", ""}}));
  conversation.variables = TRY(reasoning_variables(fields, *chat));

  ResponsePrompt out{.before = history.last};
  ApiResult<ChatPrompt> prompt =
      fit_prompt(model, std::move(conversation), asker.asked.value_or(1), truncation == "auto");
  if (!prompt.ok()) return in_input(std::move(prompt.error()));
  out.prompt = *std::move(prompt);
  if (asker.keep != nullptr) out.kept_input = asker.keep(input);
  return out;
}

}  // namespace tessera
