// Catches: routes that a client can use without the key that they require, and keys that give access to too many or too
// few routes.
#include "tessera/server/http/access.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

int status(const Access& access, std::string_view authorization, RouteAccess route) {
  const std::optional<ApiError> refused = access.check({.method = "GET",
                                                        .path = "/",
                                                        .query = "",
                                                        .headers = {{"Authorization", std::string(authorization)}},
                                                        .body = ""},
                                                       route);
  return refused ? refused->http_status : 200;
}

TEST(Access, WithoutKeysEverythingIsOpen) {
  const Access access({}, {});
  for (const RouteAccess route : {RouteAccess::kOpen, RouteAccess::kClient, RouteAccess::kAdmin})
    EXPECT_EQ(status(access, "", route), 200);
}

TEST(Access, ClientKeysOpenAdminRoutesWithoutAdminKeys) {
  const Access access({"a", "b"}, {});
  EXPECT_EQ(status(access, "", RouteAccess::kOpen), 200);
  for (const RouteAccess route : {RouteAccess::kClient, RouteAccess::kAdmin}) {
    EXPECT_EQ(status(access, "", route), 401);
    EXPECT_EQ(status(access, "Bearer c", route), 401);
    EXPECT_EQ(status(access, "Bearer b", route), 200);
  }
}

TEST(Access, OnlyAdminKeysOpenAdminRoutes) {
  const Access access({"client"}, {"admin"});
  EXPECT_EQ(status(access, "Bearer admin", RouteAccess::kClient), 200);
  EXPECT_EQ(status(access, "Bearer admin", RouteAccess::kAdmin), 200);
  EXPECT_EQ(status(access, "Bearer client", RouteAccess::kClient), 200);
  EXPECT_EQ(status(access, "Bearer client", RouteAccess::kAdmin), 403);
  EXPECT_EQ(status(access, "Bearer other", RouteAccess::kAdmin), 401);
  EXPECT_EQ(status(access, "", RouteAccess::kAdmin), 401);
}

TEST(Access, AdminKeysAloneLeaveOtherRoutesOpen) {
  const Access access({}, {"admin"});
  EXPECT_EQ(status(access, "", RouteAccess::kClient), 200);
  EXPECT_EQ(status(access, "Bearer wrong", RouteAccess::kClient), 200);
  EXPECT_EQ(status(access, "", RouteAccess::kAdmin), 401);
  EXPECT_EQ(status(access, "bearer admin", RouteAccess::kAdmin), 200);
}

}  // namespace
}  // namespace tessera
