// Catches: an error that is lost or changed on its way through TRY, and a value that TRY copies instead of moving it.
#include "tessera/base/status.h"

#include <gtest/gtest.h>

#include <memory>

namespace tessera {
namespace {

Result<std::unique_ptr<int>> make(int v) {
  if (v < 0) return invalid_argument("v is -1; 0 or more is accepted");
  return std::make_unique<int>(v);
}

Result<int> twice(int v) {
  const std::unique_ptr<int> p = TRY(make(v));
  return 2 * *p;
}

Status check(int v) {
  TRY(twice(v));
  return ok_status();
}

TEST(Status, TryMovesValuesAndPropagatesErrors) {
  EXPECT_EQ(*twice(21), 42);
  EXPECT_FALSE(twice(-1).ok());
  EXPECT_EQ(twice(-1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(check(1).ok());
  EXPECT_EQ(check(-1).message(), "v is -1; 0 or more is accepted");
}

TEST(Status, ContextIsAddedOutermostFirst) {
  const Status s = check(-1).with_context("reading a.json").with_context("loading the model");
  EXPECT_EQ(s.to_string(), "invalid argument: loading the model: reading a.json: v is -1; 0 or more is accepted");
  EXPECT_TRUE(ok_status().with_context("x").ok());
}

TEST(Status, CopyKeepsItsErrorWhenTheOriginalChanges) {
  Status original = not_found("a file");
  const Status copy = original;
  original = std::move(original).with_context("reading");
  EXPECT_EQ(copy.message(), "a file");
  EXPECT_EQ(original.message(), "reading: a file");
}

TEST(Status, MovedFromIsOk) {
  Status from = data_loss("a page");
  const Status to = std::move(from);
  EXPECT_TRUE(from.ok());  // NOLINT(bugprone-use-after-move): what this test is about
  EXPECT_EQ(to.code(), StatusCode::kDataLoss);
}

TEST(Status, SelfAssignmentKeepsTheError) {
  Status status = cancelled("a request");
  const Status& same = status;
  status = same;
  EXPECT_EQ(status.message(), "a request");
}

TEST(Status, AssigningOkClearsTheError) {
  Status status = cancelled("a request");
  status = ok_status();
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.message(), "");
}

}  // namespace
}  // namespace tessera
