// Catches: routes without a description; descriptions without a route; answers with a status or a content type that is
// not described; described fields that a route does not accept; and a page that loads other files.
#include "tessera/server/reference/openapi.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "tessera/server/fields/request_fields.h"
#include "tessera/server/server_test_util.h"

namespace tessera::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::vector<Route> routes_of_docs() {
  std::vector<Route> routes;
  for (const RouteDoc& doc : route_docs()) {
    const auto same = [&](const Route& route) { return route.method == doc.method && route.path == doc.route; };
    if (std::ranges::none_of(routes, same))
      routes.push_back({.method = std::string(doc.method), .path = std::string(doc.route), .handler = {}});
  }
  return routes;
}

TEST(DocumentRoutes, ARouteWithoutARowIsAnError) {
  std::vector<Route> routes = routes_of_docs();
  ASSERT_TRUE(document_routes(routes).ok());
  routes.push_back({.method = "GET", .path = "/new", .handler = {}});
  EXPECT_THAT(document_routes(routes).status().message(), HasSubstr("GET /new has no row"));
}

TEST(DocumentRoutes, ARowWithoutARouteIsAnError) {
  std::vector<Route> routes = routes_of_docs();
  std::erase_if(routes, [](const Route& route) { return route.path == "/tokenize"; });
  EXPECT_THAT(document_routes(routes).status().message(), HasSubstr("POST /tokenize has a row"));
}

TEST(RouteDocs, EachMethodAndPathIsThereOnce) {
  std::set<std::pair<std::string_view, std::string_view>> seen;
  for (const RouteDoc& doc : route_docs())
    EXPECT_TRUE(seen.emplace(doc.method, doc.path).second) << doc.method << " " << doc.path;
}

class OpenApiServer : public ServerTest {
 protected:
  // Sends a request to the route, with an id in place of the path's parameter.
  static Reply ask(const Running& running, const RouteDoc& doc, const std::string& body = "",
                   const std::string& headers = "") {
    std::string path(doc.path);
    if (const std::size_t begin = path.find('{'); begin != std::string::npos)
      path.replace(begin, path.find('}') - begin + 1, "demo");
    std::string length = doc.method == "POST" ? "Content-Length: " + std::to_string(body.size()) + "\r\n" : "";
    return running.ask(std::string(doc.method) + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers + length +
                       "\r\n" + body);
  }
  // Expects that the document lists the reply's status, and the reply's content type for that status.
  static void expect_documented(const Json& document, const RouteDoc& doc, const Reply& reply) {
    SCOPED_TRACE(std::string(doc.method) + " " + std::string(doc.path) + ": " + reply.head + reply.body.substr(0, 300));
    std::string method(doc.method);
    std::ranges::transform(method, method.begin(), [](unsigned char c) { return std::tolower(c); });
    const Json* path = document.find("paths")->find(doc.path);
    ASSERT_NE(path, nullptr);
    const Json* operation = path->find(method);
    ASSERT_NE(operation, nullptr);
    const Json* answer = operation->find("responses")->find(std::to_string(reply.status));
    ASSERT_NE(answer, nullptr) << "the status is not documented";
    if (const Json* reference = answer->find("$ref")) {
      const std::string& target = reference->as_string();
      answer = document.find("components")->find("responses")->find(target.substr(target.rfind('/') + 1));
      ASSERT_NE(answer, nullptr) << target;
    }
    const Json::Object& types = answer->find("content")->as_object();
    EXPECT_TRUE(std::ranges::any_of(types, [&](const Json::Member& type) {
      return reply.head.find("Content-Type: " + type.first) != std::string::npos;
    })) << "the type is not documented";
  }
};

TEST_F(OpenApiServer, AnswersHaveDocumentedStatusAndType) {
  const Running running(engine());
  const Json document = running.json(get("/openapi.json"));
  EXPECT_EQ(document.find("openapi")->as_string(), "3.1.0");
  for (const RouteDoc& doc : route_docs()) {
    for (const std::string body : {"", "{}", "[", R"({"model": "other"})"})
      expect_documented(document, doc, ask(running, doc, body));
    expect_documented(document, doc, ask(running, doc, "{}", "Content-Type: text/html\r\n"));
    expect_documented(document, doc, ask(running, doc, "{}", "Expect: more\r\n"));
    expect_documented(document, doc, ask(running, doc, "{}", "Origin: http://a\r\n"));
    expect_documented(document, doc, ask(running, doc, "{}", "Accept: text/html\r\n"));
    expect_documented(document, doc, ask(running, doc, "{}", "A: " + std::string(20'000, 'a') + "\r\n"));
  }
}

TEST_F(OpenApiServer, StreamsHaveADocumentedType) {
  const Running running(engine());
  const Json document = running.json(get("/openapi.json"));
  for (const RouteDoc& doc : route_docs()) {
    if (doc.method != "POST" || doc.answers.find(' ') == std::string_view::npos) continue;
    const bool by_prompt = doc.path == "/v1/completions" || doc.path == "/api/generate";
    const std::string input =
        doc.path == "/generate"            ? R"("text": "a")"
        : doc.path.ends_with("/responses") ? R"("model": "demo", "input": "a")"
        : by_prompt                        ? R"("model": "demo", "prompt": "a")"
                    : R"("model": "demo", "max_tokens": 2, "messages": [{"role": "user", "content": "a"}])";
    const bool is_ollama = doc.path.starts_with("/api/");
    const std::string body =
        "{" +
        (is_ollama ? std::string(R"("model": "demo", "options": {"num_predict": 2}, )") +
                         (by_prompt ? R"("prompt": "a")" : R"("messages": [{"role": "user", "content": "a"}])")
                   : input) +
        R"(, "stream": true})";
    expect_documented(document, doc, ask(running, doc, body));
  }
}

TEST_F(OpenApiServer, RoutesWithoutAKeyAreThoseWithoutSecurity) {
  const Running running(engine(), {.api_keys = {"key"}});
  const Json document = running.json(get("/openapi.json"));
  for (const RouteDoc& doc : route_docs()) {
    const Reply reply = ask(running, doc, "{}");
    std::string method(doc.method);
    std::ranges::transform(method, method.begin(), [](unsigned char c) { return std::tolower(c); });
    const Json* security = document.find("paths")->find(doc.path)->find(method)->find("security");
    EXPECT_EQ(reply.status == 401, security == nullptr) << doc.method << " " << doc.path << " " << reply.status;
    expect_documented(document, doc, reply);
  }
}

TEST_F(OpenApiServer, DocumentedFieldsAreKnownToTheirRoute) {
  const Running running(engine());
  for (const RouteDoc& doc : route_docs()) {
    for (const AcceptedField& field : accepted_fields(doc.fields)) {
      const auto is_known = [&](const std::string& more) {
        const Reply reply = ask(running, doc, "{" + more + "\"" + std::string(field.name) + R"(": {"a": 1}})");
        return reply.body.find("is not known") == std::string::npos;
      };
      // /v1/score reads two kinds of requests. The field "label_token_ids" selects the second kind.
      EXPECT_TRUE(is_known("") || is_known(R"("label_token_ids": [1], )")) << doc.path << " " << field.name;
    }
  }
}

TEST_F(OpenApiServer, UnknownFieldsAreRefusedByRoutesWithFields) {
  const Running running(engine());
  for (const RouteDoc& doc : route_docs()) {
    if (doc.fields == 0) continue;
    EXPECT_EQ(ask(running, doc, R"({"no_such_field": 1})").status, 400) << doc.path;
  }
}

TEST_F(OpenApiServer, ThePageListsEveryRouteAndLoadsNothing) {
  const Running running(engine());
  const Reply page = running.ask(get("/docs"));
  EXPECT_EQ(page.status, 200);
  EXPECT_THAT(page.head, HasSubstr("Content-Security-Policy: default-src 'none'"));
  for (const RouteDoc& doc : route_docs())
    EXPECT_THAT(page.body, HasSubstr("<code>" + std::string(doc.method) + " " + std::string(doc.path) + "</code>"));
  for (const char* loads : {"<script", "src=", "<link", "@import", "url("})
    EXPECT_THAT(page.body, Not(HasSubstr(loads)));
}

}  // namespace
}  // namespace tessera::testing
