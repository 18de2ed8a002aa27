// Tests the routes of /v1/responses end to end. Catches: routes that answer wrongly; a client that can read responses
// of another client; a background response that ends when its client leaves, or whose events cannot be streamed later;
// and errors that name no field.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tessera/server/responses/encoded_text.h"
#include "tessera/server/server_test_util.h"

namespace tessera::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string ask_response(const std::string& members) {
  return post("/v1/responses", R"({"model": "demo", "temperature": 0, )" + members + "}");
}
std::string with_key(const std::string& request, const std::string& key) {
  const std::size_t line = request.find("\r\n") + 2;
  return request.substr(0, line) + "Authorization: Bearer " + key + "\r\n" + request.substr(line);
}
std::string erase(const std::string& path) { return "DELETE " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n"; }
std::string id_of(const Json& response) { return response.find("id")->as_string(); }
std::string status_of(const Json& response) { return response.find("status")->as_string(); }
std::string param_of(const Json& answer) {
  const Json* error = answer.find("error");
  const Json* param = error != nullptr ? error->find("param") : nullptr;
  return param != nullptr && param->is_string() ? param->as_string() : "";
}
std::string text_of_output(const Json& response) {
  const Json& item = response.find("output")->as_array().back();
  return item.find("content")->as_array()[0].find("text")->as_string();
}

// Waits until a background response has ended.
Json ended(const Running& running, const std::string& id) {
  for (int i = 0; i < 600; ++i) {
    Json response = running.json(get("/v1/responses/" + id));
    if (status_of(response) != "queued" && status_of(response) != "in_progress") return response;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  ADD_FAILURE() << "the response did not end";
  return Json();
}

class ResponsesTest : public ServerTest {};

TEST_F(ResponsesTest, EveryReferenceToAnItemIsChargedToMemory) {
  ServerOptions options;
  options.request_memory_bytes = 16 << 20;
  const Running running(engine(), options);
  const Json first = running.json(ask_response(R"("input": "Once", "max_output_tokens": 8)"));
  const std::string reference =
      R"({"type": "item_reference", "id": ")" + id_of(first.find("output")->as_array()[0]) + R"("})";
  const auto count = [&](int references, int status) {
    std::string list = reference;
    for (int i = 1; i < references; ++i) list += "," + reference;
    return running.json(post("/v1/responses/input_tokens", R"({"model": "demo", "input": [)" + list + "]}"), status);
  };
  const auto tokens = [](const Json& counted) { return counted.find("input_tokens")->as_int(); };
  EXPECT_EQ(tokens(count(101, 200)) - tokens(count(1, 200)), 100 * (tokens(count(2, 200)) - tokens(count(1, 200))));
  EXPECT_THAT(param_of(count(4000, 503)), StartsWith("input["));
}

TEST_F(ResponsesTest, AConversationGoesOnFromAStoredResponse) {
  const Running running(engine());
  const Json first =
      running.json(ask_response(R"("input": "Once", "max_output_tokens": 8, "instructions": "Be brief.")"));
  EXPECT_EQ(status_of(first), "incomplete");
  EXPECT_EQ(running.json(get("/v1/responses/" + id_of(first))).dump(), first.dump());
  EXPECT_EQ(running.json(get("/responses/" + id_of(first))).dump(), first.dump());
  const Json next = running.json(
      ask_response(R"("input": "upon", "max_output_tokens": 8, "previous_response_id": ")" + id_of(first) + "\""));
  const std::string items = R"([{"role": "user", "content": "Once"}, )" + first.find("output")->as_array()[0].dump() +
                            R"(, {"role": "user", "content": "upon"}])";
  const Json same = running.json(ask_response(R"("max_output_tokens": 8, "input": )" + items));
  EXPECT_EQ(text_of_output(next), text_of_output(same));
  EXPECT_EQ(next.find("usage")->find("input_tokens")->dump(), same.find("usage")->find("input_tokens")->dump());
  const std::string reference = id_of(first.find("output")->as_array()[0]);
  const Json referred = running.json(ask_response(
      R"("max_output_tokens": 8, "input": [{"role": "user", "content": "Once"}, {"type": "item_reference", "id": ")" +
      reference + R"("}, {"role": "user", "content": "upon"}])"));
  EXPECT_EQ(text_of_output(referred), text_of_output(same));

  const std::string list = "/v1/responses/" + id_of(next) + "/input_items";
  const Json all = running.json(get(list + "?order=asc"));
  ASSERT_EQ(all.find("data")->as_array().size(), 3U);
  EXPECT_EQ(*all.find("data")->as_array()[1].find("id"), Json(reference));
  EXPECT_EQ(*all.find("has_more"), Json(false));
  const Json page = running.json(get(list + "?limit=1&after=" + id_of(all.find("data")->as_array()[2])));
  EXPECT_EQ(page.find("first_id")->as_string(), reference);
  EXPECT_EQ(*page.find("has_more"), Json(true));

  EXPECT_EQ(*running.json(erase("/v1/responses/" + id_of(first))).find("deleted"), Json(true));
  EXPECT_EQ(error_code(running.json(get("/v1/responses/" + id_of(first)), 404)), "not_found");
  running.json(erase("/v1/responses/" + id_of(first)), 404);
}

std::string compact(const std::string& members) {
  return post("/v1/responses/compact", R"({"model": "demo", "temperature": 0, )" + members + "}");
}

TEST_F(ResponsesTest, ACompactedConversationGoesOnFromItsSummary) {
  const Running running(engine());
  const Json first = running.json(ask_response(R"("input": "Once", "max_output_tokens": 8)"));
  const Json compacted = running.json(
      compact(R"("max_output_tokens": 8, "input": "upon", "previous_response_id": ")" + id_of(first) + "\""));
  EXPECT_EQ(compacted.find("object")->as_string(), "response.compaction");
  EXPECT_GT(compacted.find("usage")->find("output_tokens")->as_int(), 0);
  const Json::Array& items = compacted.find("output")->as_array();
  ASSERT_EQ(items.size(), 3U) << compacted.dump();
  EXPECT_EQ(items[0].find("content")->as_array()[0].find("text")->as_string(), "Once");
  EXPECT_EQ(items[1].find("content")->as_array()[0].find("text")->as_string(), "upon");
  EXPECT_EQ(items[2].find("type")->as_string(), "compaction");
  const std::optional<std::string> summary = decode_text(items[2].find("encrypted_content")->as_string());
  ASSERT_TRUE(summary);
  EXPECT_NE(*summary, "");
  const auto next = [&](const Json& item) {
    return running.json(ask_response(R"("max_output_tokens": 8, "input": [)" + items[0].dump() + ", " + item.dump() +
                                     R"(, {"role": "user", "content": "a"}])"));
  };
  const Json same =
      next(Json::object({{"role", "user"}, {"content", "Summary of the conversation so far:\n" + *summary}}));
  EXPECT_EQ(text_of_output(next(items[2])), text_of_output(same));
  EXPECT_EQ(*next(items[2]).find("usage")->find("input_tokens"), *same.find("usage")->find("input_tokens"));
}

TEST_F(ResponsesTest, WrongCompactionsAreNamed) {
  const Running running(engine());
  for (const auto& [members, param] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"("input": "a", "stream": true)", "stream"},
           {R"("input": "a", "background": true)", "background"},
           {R"("instructions": "a")", "input"},
           {R"("input": [])", "input"},
           {R"("input": 5)", "input"},
           {R"("input": [{"type": "compaction", "encrypted_content": "gAAAA"}])", "input[0].encrypted_content"},
           {R"("input": [{"type": "compaction"}])", "input[0].encrypted_content"}})
    EXPECT_EQ(param_of(running.json(compact(members), 400)), param) << members;
  EXPECT_EQ(param_of(running.json(compact(R"("previous_response_id": "resp_1")"), 400)), "previous_response_id");
  const Json first = running.json(ask_response(R"("input": "Once", "max_output_tokens": 2)"));
  EXPECT_EQ(param_of(running.json(compact(R"("input": 5, "previous_response_id": ")" + id_of(first) + "\""), 400)),
            "input");
}

TEST_F(ResponsesTest, AStreamGivesTheSameText) {
  const Running running(engine());
  const Json plain = running.json(ask_response(R"("input": "Once", "max_output_tokens": 12)"));
  const Reply stream = running.ask(ask_response(R"("input": "Once", "max_output_tokens": 12, "stream": true)"));
  EXPECT_TRUE(stream.has_line("Content-Type: text/event-stream")) << stream.head;
  EXPECT_THAT(stream.body, StartsWith("event: response.created\ndata: {\"type\":\"response.created\""));
  std::string text;
  for (std::size_t at = 0;
       (at = stream.body.find("event: response.output_text.delta\ndata: ", at)) != std::string::npos;) {
    at += 40;
    text += Json::parse(stream.body.substr(at, stream.body.find('\n', at) - at), "event")->find("delta")->as_string();
  }
  EXPECT_EQ(text, text_of_output(plain));
  EXPECT_EQ(stream.body.find("[DONE]"), std::string::npos);
}

TEST_F(ResponsesTest, ABackgroundResponseCanBeFollowedAgain) {
  const Running running(engine());
  const Reply first =
      running.ask(ask_response(R"("input": "Once", "max_output_tokens": 12, "background": true, "stream": true)"));
  EXPECT_THAT(first.body, HasSubstr("event: response.incomplete"));
  const std::size_t at = first.body.find("resp_");
  const std::string id = first.body.substr(at, first.body.find('"', at) - at);
  EXPECT_EQ(running.ask(get("/v1/responses/" + id + "?stream=true")).body, first.body);
  const std::string rest = running.ask(get("/v1/responses/" + id + "?stream=true&starting_after=3")).body;
  EXPECT_THAT(rest, HasSubstr("\"sequence_number\":4,"));
  EXPECT_TRUE(first.body.ends_with(rest));
  EXPECT_LT(rest.size(), first.body.size());
  EXPECT_EQ(param_of(running.json(get("/v1/responses/" + id + "?stream=true&starting_after=999"), 400)),
            "starting_after");
  EXPECT_EQ(param_of(running.json(get("/v1/responses/" + id + "?stream=true&starting_after=x"), 400)),
            "starting_after");
}

TEST_F(ResponsesTest, ABackgroundResponseEndsWithoutItsClient) {
  const Running running(engine());
  Json response;
  {
    Client client(running.port);
    response = *Json::parse(
        client.ask(ask_response(R"("input": "Once", "max_output_tokens": 12, "background": true)")).body, "answer");
  }
  EXPECT_EQ(status_of(response), "queued");
  const Json end = ended(running, id_of(response));
  EXPECT_EQ(status_of(end), "incomplete");
  EXPECT_FALSE(text_of_output(end).empty());
  EXPECT_EQ(param_of(running.json(get("/v1/responses/" + id_of(response) + "?stream=true"), 400)), "stream");
  EXPECT_EQ(status_of(running.json(post("/v1/responses/" + id_of(response) + "/cancel", ""))), "incomplete")
      << "a response that has ended stays as it is";
}

TEST_F(ResponsesTest, ABackgroundResponseCanBeCancelled) {
  const Running running(engine());
  const Json response = running.json(ask_response(R"("input": "Once", "max_output_tokens": 450, "background": true)"));
  const Json cancelled = running.json(post("/v1/responses/" + id_of(response) + "/cancel", ""));
  EXPECT_EQ(status_of(cancelled), "cancelled");
  EXPECT_EQ(status_of(running.json(get("/v1/responses/" + id_of(response)))), "cancelled");
  EXPECT_EQ(
      param_of(running.json(ask_response(R"("input": "a", "previous_response_id": ")" + id_of(response) + "\""), 400)),
      "previous_response_id");
  const Json deleted = running.json(ask_response(R"("input": "Once", "max_output_tokens": 450, "background": true)"));
  running.json(erase("/v1/responses/" + id_of(deleted)));
  running.json(get("/v1/responses/" + id_of(deleted)), 404);
  const Json plain = running.json(ask_response(R"("input": "Once", "max_output_tokens": 2)"));
  EXPECT_EQ(running.ask(post("/v1/responses/" + id_of(plain) + "/cancel", "")).status, 400);
}

TEST_F(ResponsesTest, AnotherKeyReachesNothing) {
  ServerOptions options;
  options.api_keys = {"mine", "yours"};
  const Running running(engine(), options);
  const Json mine =
      running.json(with_key(ask_response(R"("input": "Once", "max_output_tokens": 2, "background": true)"), "mine"));
  const std::string path = "/v1/responses/" + id_of(mine);
  const std::string item_path = path + "/input_items";
  const std::string goes_on = ask_response(R"("input": "a", "previous_response_id": ")" + id_of(mine) + "\"");
  for (const std::string& request :
       {get(path), get(item_path), get(path + "?stream=true"), erase(path), post(path + "/cancel", ""), goes_on}) {
    const int status = request == goes_on ? 400 : 404;
    const Json refused = running.json(with_key(request, "yours"), status);
    const std::string unknown =
        std::string(request).replace(request.find(id_of(mine)), id_of(mine).size(), "resp_" + std::string(32, '0'));
    EXPECT_EQ(error_code(refused), error_code(running.json(with_key(unknown, "yours"), status))) << request;
  }
  EXPECT_EQ(running.ask(with_key(get(path), "mine")).status, 200);
  EXPECT_EQ(running.ask(get(path)).status, 401);
}

TEST_F(ResponsesTest, AdministratorsAndClientsReachOnlyTheirOwn) {
  struct Case {
    std::vector<std::string> keys, admin_keys;
    std::vector<std::string> holders;  // each makes a response; "": without a key
  };
  for (const Case& c : {Case{{"k1"}, {"adm"}, {"k1", "adm"}}, Case{{}, {"adm", "adm2"}, {"adm", "adm2", ""}}}) {
    ServerOptions options;
    options.api_keys = c.keys;
    options.admin_api_keys = c.admin_keys;
    const Running running(engine(), options);
    const auto as = [](const std::string& key, const std::string& request) {
      return key.empty() ? request : with_key(request, key);
    };
    for (const std::string& maker : c.holders) {
      const Json made = running.json(as(maker, ask_response(R"("input": "Once", "max_output_tokens": 1)")));
      for (const std::string& reader : c.holders)
        EXPECT_EQ(running.ask(as(reader, get("/v1/responses/" + id_of(made)))).status, reader == maker ? 200 : 404)
            << maker << " made it, " << reader << " reads it";
    }
  }
}

TEST_F(ResponsesTest, AConversationGoesOnFromACutOffCall) {
  const Running running(engine());
  const Json cut = running.json(ask_response(R"("input": "Once", "max_output_tokens": 8, "tools": [{"type": "function",
      "name": "f", "parameters": {"type": "object", "properties": {"city": {"type": "string", "minLength": 200}},
      "required": ["city"]}}], "tool_choice": {"type": "function", "name": "f"})"));
  const Json& call = cut.find("output")->as_array()[0];
  EXPECT_EQ(status_of(call), "incomplete");
  const std::string result = R"({"type": "function_call_output", "output": "cut off", "call_id": ")" +
                             call.find("call_id")->as_string() + "\"}";
  running.json(ask_response(R"("max_output_tokens": 1, "previous_response_id": ")" + id_of(cut) + R"(", "input": [)" +
                            result + "]"));
  running.json(ask_response(R"("max_output_tokens": 1, "input": [{"role": "user", "content": "Once"}, )" + call.dump() +
                            ", " + result + "]"));
}

TEST_F(ResponsesTest, AnUnknownIdInThePathIsNamed) {
  const Running running(engine());
  for (const std::string& request : {get("/v1/responses/resp_0"), get("/v1/responses/resp_0/input_items"),
                                     erase("/v1/responses/resp_0"), post("/v1/responses/resp_0/cancel", "")})
    EXPECT_EQ(param_of(running.json(request, 404)), "response_id") << request;
}

TEST_F(ResponsesTest, AWrongParameterOfTheQueryIsNamed) {
  const Running running(engine());
  const std::string path =
      "/v1/responses/" + id_of(running.json(ask_response(R"("input": "Once", "max_output_tokens": 1)")));
  for (const auto& [query, param] : std::initializer_list<std::pair<const char*, const char*>>{
           {"?stream=maybe", "stream"},
           {"?starting_after=3", "starting_after"},
           {"?stream=false&starting_after=3", "starting_after"},
           {"?include=zzz", "include[0]"},
           {"?include[]=reasoning.encrypted_content&include[]=zzz", "include[1]"},
           {"/input_items?include=zzz", "include[0]"}})
    EXPECT_EQ(param_of(running.json(get(path + query), 400)), param) << query;
  for (const char* query : {"?stream=false", "?include=message.output_text.logprobs", "?include_obfuscation=false"})
    EXPECT_EQ(running.ask(get(path + query)).status, 200) << query;
}

TEST_F(ResponsesTest, AWrongFieldIsNamed) {
  const Running running(engine());
  for (const auto& [members, param] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"("instructions": "a")", "input"},
           {R"("input": 5)", "input"},
           {R"("input": [{"role": "user"}])", "input[0].content"},
           {R"("input": "a", "max_output_tokens": 0)", "max_output_tokens"},
           {R"("input": "a", "max_output_tokens": 5000)", "input"},
           {R"("input": "a", "reasoning": {"effort": "huge"})", "reasoning.effort"},
           {R"("input": "a", "reasoning": {"summary": "long"})", "reasoning.summary"},
           {R"("input": "a", "text": {"format": {"type": "xml"}})", "text.format.type"},
           {R"("input": "a", "text": {"format": {"type": "json_schema"}})", "text.format.schema"},
           {R"("input": "a", "truncation": "middle")", "truncation"},
           {R"("input": "a", "background": true, "store": false)", "background"},
           {R"("input": "a", "text": {"format": {"type": "json_schema", "schema": {}}})", "text.format.name"},
           {R"("input": "a", "include": ["reasoning.encrypted_content", "zzz"])", "include[1]"},
           {R"("input": "a", "include": "reasoning.encrypted_content")", "include"},
           {R"("input": [{"type": "function_call", "call_id": "1", "name": "f"}])", "input[0].arguments"},
           {R"("input": "a", "metadata": {"a": 1})", "metadata.a"},
           {R"("input": "a", "client_metadata": [])", "client_metadata"},
           {R"("input": "a", "conversation": "conv_1")", "conversation"}})
    EXPECT_EQ(param_of(running.json(ask_response(members), 400)), param) << members;
  EXPECT_EQ(param_of(running.json(ask_response(R"("input": [{"type": "item_reference", "id": "msg_1"}])"), 404)),
            "input[0].id");
  std::string pairs;
  for (int i = 0; i < 65; ++i) pairs += fmt::format("{}\"{}\": \"v\"", i == 0 ? "" : ", ", i);
  const std::string attached = R"("input": "a", "client_metadata": {)" + pairs + "}";
  EXPECT_EQ(param_of(running.json(ask_response(attached), 400)), "client_metadata");
  const Json unknown = running.json(ask_response(R"("input": "a", "previous_response_id": "resp_1")"), 400);
  EXPECT_EQ(error_code(unknown), "previous_response_not_found");
  EXPECT_EQ(running.ask(get("/v1/responses/a/b")).status, 404);
  EXPECT_EQ(running.ask(post("/v1/responses/a/b", "")).status, 404);
}

TEST_F(ResponsesTest, NothingIsStoredUnlessAllowed) {
  ServerOptions options;
  options.stored_responses = 0;
  const Running running(engine(), options);
  const Json response = running.json(ask_response(R"("input": "a", "max_output_tokens": 2)"));
  EXPECT_EQ(*response.find("store"), Json(false));
  running.json(get("/v1/responses/" + id_of(response)), 404);
  EXPECT_EQ(param_of(running.json(ask_response(R"("input": "a", "store": true)"), 400)), "store");
  EXPECT_EQ(param_of(running.json(ask_response(R"("input": "a", "background": true)"), 400)), "background");
}

// A stream begins with two events. Each of them contains the whole response object, with the instructions of the
// request. The store has room for one response object, but not for these two events.
TEST_F(ResponsesTest, EventsThatDoNotFitAreRefusedAtOnce) {
  ServerOptions options;
  options.stored_response_bytes = 1500;
  const Running running(engine(), options);
  const std::string members =
      R"("input": "a", "max_output_tokens": 2, "background": true, "instructions": ")" + std::string(100, 'a') + "\"";
  const Json refused = running.json(ask_response(members + R"(, "stream": true)"), 413);
  EXPECT_THAT(refused.find("error")->find("message")->as_string(), HasSubstr("do not fit into the store"));
  EXPECT_EQ(status_of(running.json(ask_response(members))), "queued");
}

TEST_F(ResponsesTest, TruncationLeavesOldTurnsOut) {
  const Running running(engine());
  std::string items = R"({"role": "system", "content": "S"})";
  for (int i = 0; i < 40; ++i)
    items += R"(, {"role": "user", "content": "Once upon a time there was a little ball in a garden."})";
  const std::string members = R"("max_output_tokens": 4, "input": [)" + items + "]";
  EXPECT_EQ(error_code(running.json(ask_response(members), 400)), "context_length_exceeded");
  const Json response = running.json(ask_response(members + R"(, "truncation": "auto")"));
  EXPECT_LE(response.find("usage")->find("input_tokens")->as_int(), 508);
  EXPECT_GT(response.find("usage")->find("input_tokens")->as_int(), 400) << "no more than needed is left out";
}

TEST_F(ResponsesTest, SmallRoutesForAgentsAnswer) {
  const Running running(engine());
  const Json count = running.json(post("/v1/responses/input_tokens", R"({"model": "demo", "input": "Once"})"));
  const Json response = running.json(ask_response(R"("input": "Once", "max_output_tokens": 1)"));
  EXPECT_EQ(*count.find("input_tokens"), *response.find("usage")->find("input_tokens"));
  EXPECT_EQ(running.json(ask_response(R"("input": [], "max_output_tokens": 1)")).find("object")->as_string(),
            "response");
  EXPECT_EQ(*running.json(get("/v1/models?client_version=0.163.0")).find("models"), Json::array());
  EXPECT_EQ(running.json(get("/v1/models")).find("models"), nullptr);
  const Reply noted =
      running.ask(ask_response(R"("input": "a", "max_output_tokens": 1, "tools": [{"type": "web_search"}])"));
  EXPECT_EQ(noted.status, 200);
  EXPECT_TRUE(noted.has_line("X-Tessera-Note: the model is not shown the tools of these types: web_search"))
      << noted.head;
}

}  // namespace
}  // namespace tessera::testing
