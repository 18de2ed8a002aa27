// Catches: a check that accepts a body which a web page's form could send, or an encoding that the server cannot
// inflate.
#include "tessera/server/http/bodies/body_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using ::testing::HasSubstr;

TEST(BodyCheck, AcceptsEveryNameOfJson) {
  for (const char* type :
       {"application/json", "Application/JSON; charset=utf-8", "application/json ;x", "application/vnd.api+json"})
    EXPECT_TRUE(is_json_type(type)) << type;
  for (const char* type : {"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
                           "application/+json", "text/json", "application/jsonp", "application/xml"})
    EXPECT_FALSE(is_json_type(type)) << type;
}

TEST(BodyCheck, RefusesOtherBodiesWith415) {
  HttpRequest request{.method = "POST", .path = "/", .query = {}, .headers = {}, .body = {}, .has_body = true};
  EXPECT_FALSE(check_body(request, BodyType::kJson).has_value()) << "no type";
  request.headers = {{"content-type", "application/x-www-form-urlencoded"}};
  const std::optional<HttpResponse> form = check_body(request, BodyType::kJson);
  ASSERT_TRUE(form.has_value());
  EXPECT_EQ(form->status, 415);
  EXPECT_THAT(form->body, HasSubstr("-H 'Content-Type: application/json'"));
  request.has_body = false;
  EXPECT_FALSE(check_body(request, BodyType::kJson).has_value()) << "no body: curl -X POST -d ''";

  request.has_body = true;
  request.headers = {{"Content-Type", "application/json"}, {"Content-Encoding", "br"}};
  const std::optional<HttpResponse> coded = check_body(request, BodyType::kJson);
  ASSERT_TRUE(coded.has_value());
  EXPECT_EQ(coded->status, 415);
  EXPECT_THAT(coded->headers, ::testing::Contains(::testing::Pair("Accept-Encoding", "gzip, deflate, zstd")));
  request.headers[1].second = "zstd";
  EXPECT_FALSE(check_body(request, BodyType::kJson).has_value());
}

}  // namespace
}  // namespace tessera
