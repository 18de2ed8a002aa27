// Catches: paths that reach the wrong handler; refused methods without the list of accepted ones; and keys that are
// accepted because their beginning matches.
#include "tessera/server/http/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

Router routes() {
  Router router;
  for (const auto& [method, path] : {std::pair("GET", "/v1/models"), std::pair("GET", "/v1/models/*"),
                                     std::pair("POST", "/both"), std::pair("GET", "/both")}) {
    router.add({.method = method, .path = path, .handler = {}});
  }
  return router;
}

TEST(Router, FindsByMethodAndPath) {
  const Router router = routes();
  const auto path = [&](const char* method, const char* asked) {
    ApiResult<const Route*> route = router.find(method, asked);
    return route.ok() ? (*route)->path : std::to_string(route.error().http_status);
  };
  EXPECT_EQ(path("GET", "/v1/models"), "/v1/models");
  EXPECT_EQ(path("GET", "/v1/models/org/name"), "/v1/models/*");
  EXPECT_EQ(path("GET", "/v1/models/"), "404");
  EXPECT_EQ(path("GET", "/v1/modelsx"), "404");
  EXPECT_EQ(path("GET", "/v1"), "404");
  EXPECT_EQ(path("POST", "/v1/models"), "405");
  EXPECT_EQ(path("POST", "/both"), "/both");
}

TEST(Router, ErrorsListTheAcceptedMethods) {
  const Router router = routes();
  EXPECT_EQ(router.methods("/both"), "POST, GET");
  EXPECT_EQ(router.find("PUT", "/both").error().message, "PUT is not for /both; accepted: POST, GET");
  EXPECT_EQ(router.find("GET", "/nothing").error().message, "there is nothing at /nothing");
}

TEST(Router, KeysAreComparedInFull) {
  const std::vector<std::string> keys = {"other key", "secret"};
  const auto holds = [&](const char* name, const char* value, std::span<const std::string> accepted) {
    return holds_key({.method = {}, .path = {}, .query = {}, .headers = {{name, value}}, .body = {}}, accepted);
  };
  EXPECT_TRUE(holds("Authorization", "Bearer secret", keys));
  EXPECT_TRUE(holds("Authorization", "Bearer other key", keys));
  EXPECT_TRUE(holds("Authorization", "bearer secret", keys));
  EXPECT_FALSE(holds("Authorization", "Bearer secret", {}));
  for (const char* wrong : {"", "secret", "Bearer ", "Bearer secre", "Bearer secretsecret", "Bearer Secret",
                            "Basic secret", "Bearer secret "}) {
    EXPECT_FALSE(holds("Authorization", wrong, keys)) << wrong;
  }
  EXPECT_TRUE(holds("X-Api-Key", "secret", keys)) << "Anthropic's header";
  for (const char* wrong : {"", "Bearer secret", "secre", "secretsecret"})
    EXPECT_FALSE(holds("X-Api-Key", wrong, keys)) << wrong;
}

}  // namespace
}  // namespace tessera
