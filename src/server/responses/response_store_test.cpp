// Catches: a store that grows beyond its limits; a store that forgets a response although it is running or was used
// recently; and a store that shows a response to a client that does not own it.
#include "tessera/server/responses/response_store.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

bool has(ResponseStore& store, const std::string& id, const std::string& owner = "") {
  return store.find(id, owner).ok();
}

TEST(ResponseStore, ForgetsTheLeastRecentlyUsed) {
  ResponseStore store({.number = 2});
  ASSERT_TRUE(store.put({.id = "a"}).ok());
  ASSERT_TRUE(store.put({.id = "b"}).ok());
  EXPECT_TRUE(has(store, "a"));
  ASSERT_TRUE(store.put({.id = "c"}).ok());
  EXPECT_TRUE(has(store, "a"));
  EXPECT_FALSE(has(store, "b"));
  EXPECT_EQ(store.count(), 2U);
}

TEST(ResponseStore, IsBoundedByBytes) {
  constexpr std::int64_t kLimit = 1 << 20;
  ResponseStore store({.bytes = kLimit});
  for (int i = 0; i < 40; ++i)
    ASSERT_TRUE(store.put({.id = std::to_string(i), .body = std::string(100'000, 'x')}).ok());
  EXPECT_LE(store.bytes(), kLimit);
  EXPECT_FALSE(has(store, "0"));
  EXPECT_TRUE(has(store, "39"));
  const ApiStatus large = store.put({.id = "large", .body = std::string(kLimit, 'x')});
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().http_status, 413);
  EXPECT_TRUE(has(store, "39")) << "what cannot fit makes no room";
}

TEST(ResponseStore, ForgetsWhatIsTooOld) {
  double now = 0;
  ResponseStore store({.age_s = 10}, [&now] { return now; });
  ASSERT_TRUE(store.put({.id = "a"}).ok());
  ASSERT_TRUE(store.put({.id = "runs", .running = true}).ok());
  now = 9;
  EXPECT_TRUE(has(store, "a"));
  now = 11;
  EXPECT_FALSE(has(store, "a"));
  EXPECT_TRUE(has(store, "runs"));
  ASSERT_TRUE(store.put({.id = "runs"}).ok());
  EXPECT_FALSE(has(store, "runs")) << "a response keeps its age when it is replaced";
}

TEST(ResponseStore, RunningResponsesStay) {
  ResponseStore store({.number = 1});
  ASSERT_TRUE(store.put({.id = "runs", .running = true}).ok());
  const ApiStatus full = store.put({.id = "b"});
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().http_status, 503);
  EXPECT_TRUE(has(store, "runs"));
}

TEST(ResponseStore, OthersFindNothing) {
  ResponseStore store({});
  ASSERT_TRUE(store.put({.id = "a", .owner = "me", .item_ids = {"msg_1"}}).ok());
  const auto mine = store.find("a", "you");
  const auto unknown = store.find("b", "you");
  ASSERT_FALSE(mine.ok());
  EXPECT_EQ(mine.error().http_status, 404);
  EXPECT_EQ(mine.error().code, unknown.error().code);
  EXPECT_FALSE(store.find_item("msg_1", "you").ok());
  EXPECT_FALSE(store.erase("a", "you").ok());
  EXPECT_TRUE(store.find_item("msg_1", "me").ok());
  EXPECT_TRUE(store.erase("a", "me").ok());
  EXPECT_FALSE(store.find_item("msg_1", "me").ok());
}

TEST(ResponseStore, TurnsGiveTheirBytesBack) {
  ResponseStore store({});
  const std::int64_t before = store.bytes();
  {
    std::shared_ptr<const ConversationTurn> last;
    for (int i = 0; i < 200'000; ++i) {  // a recursion this deep would overflow the stack
      auto turn = std::make_shared<ConversationTurn>("[]", "[]", std::move(last));
      turn->charge = store.new_charge();
      ASSERT_TRUE(store.charge(turn->charge, turn->bytes()).ok());
      last = std::move(turn);
    }
    EXPECT_GT(store.bytes(), before);
  }
  EXPECT_EQ(store.bytes(), before);
}

}  // namespace
}  // namespace tessera
