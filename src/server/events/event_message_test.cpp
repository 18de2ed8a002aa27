// Catches: messages that subscribers cannot read. The expected bytes are those of Python's msgpack and msgspec.
#include "tessera/server/events/event_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/server/events/hex_bytes_test_util.h"
#include "tessera/server/events/msgpack_writer.h"
#include "tessera/server/events/zmq_context.h"

namespace tessera {
namespace {

template <class T>
std::string integer_bytes(T value) {
  MsgpackWriter writer;
  writer.integer(value);
  return hex_of_bytes(writer.bytes());
}

TEST(MsgpackWriter, WritesIntegersInTheirShortestForm) {
  EXPECT_EQ(integer_bytes(std::int64_t{0}), "00");
  EXPECT_EQ(integer_bytes(std::int64_t{127}), "7f");
  EXPECT_EQ(integer_bytes(std::int64_t{128}), "cc80");
  EXPECT_EQ(integer_bytes(std::int64_t{256}), "cd0100");
  EXPECT_EQ(integer_bytes(std::int64_t{65536}), "ce00010000");
  EXPECT_EQ(integer_bytes(std::int64_t{1} << 32), "cf0000000100000000");
  EXPECT_EQ(integer_bytes(UINT64_MAX), "cfffffffffffffffff");
  EXPECT_EQ(integer_bytes(std::int64_t{-1}), "ff");
  EXPECT_EQ(integer_bytes(std::int64_t{-32}), "e0");
  EXPECT_EQ(integer_bytes(std::int64_t{-33}), "d0df");
  EXPECT_EQ(integer_bytes(std::int64_t{-129}), "d1ff7f");
  EXPECT_EQ(integer_bytes(std::int64_t{-32769}), "d2ffff7fff");
  EXPECT_EQ(integer_bytes(INT64_MIN), "d38000000000000000");
}

TEST(MsgpackWriter, WritesSizesInTheirShortestForm) {
  const auto head_of = [](auto write) {
    MsgpackWriter writer;
    write(writer);
    return hex_of_bytes(writer.bytes().substr(0, 5));
  };
  EXPECT_EQ(head_of([](auto& w) { w.array(15); }), "9f");
  EXPECT_EQ(head_of([](auto& w) { w.array(16); }), "dc0010");
  EXPECT_EQ(head_of([](auto& w) { w.array(65536); }), "dd00010000");
  EXPECT_EQ(head_of([](auto& w) { w.map(15); }), "8f");
  EXPECT_EQ(head_of([](auto& w) { w.map(16); }), "de0010");
  EXPECT_EQ(head_of([](auto& w) { w.text("ab"); }), "a26162");
  EXPECT_EQ(head_of([](auto& w) { w.text(std::string(32, 'a')); }), "d920616161");
  EXPECT_EQ(head_of([](auto& w) { w.text(std::string(256, 'a')); }), "da01006161");
  EXPECT_EQ(head_of([](auto& w) { w.text(std::string(65536, 'a')); }), "db00010000");
  EXPECT_EQ(head_of([](auto& w) { w.null(); }), "c0");
  EXPECT_EQ(head_of([](auto& w) { w.number(1.5); }), "cb3ff80000");
}

TEST(EventMessage, ABatchIsAnArrayOfMaps) {
  const BlocksStored stored{.ids = {1, 300}, .parent = 7, .tokens = {TokenId{5}, TokenId{6}}, .images = {{}, {}}};
  const std::string message =
      event_message({.events = {stored, BlocksRemoved{.ids = {1}}, BlocksCleared{}}, .unix_seconds = 1.5}, 1, 2);
  EXPECT_EQ(hex_of_bytes(message),
            "93cb3ff80000000000009388a474797065ab426c6f636b53746f726564ac626c6f636b5f6861736865739201cd012cb1"
            "706172656e745f626c6f636b5f6861736807a9746f6b656e5f696473920506aa626c6f636b5f73697a6501a76c6f7261"
            "5f6964c0a66d656469756da3475055a96c6f72615f6e616d65c083a474797065ac426c6f636b52656d6f766564ac626c"
            "6f636b5f6861736865739101a66d656469756da347505581a474797065b0416c6c426c6f636b73436c656172656402");
}

TEST(EventMessage, AdaptersAndImagesAreNamed) {
  const PageImage image{.at = 0, .count = 1, .index = 3, .content = {.high = 1, .low = 2}};
  const BlocksStored stored{
      .ids = {1, 2}, .tokens = {TokenId{5}, TokenId{6}}, .images = {{image}, {}}, .adapter = 4, .adapter_name = "sql"};
  const std::string message = event_message({.events = {stored}, .unix_seconds = 0}, 1, 0);
  EXPECT_EQ(hex_of_bytes(message),
            "93cb00000000000000009189a474797065ab426c6f636b53746f726564ac626c6f636b5f686173686573920102b17061"
            "72656e745f626c6f636b5f68617368c0a9746f6b656e5f696473920506aa626c6f636b5f73697a6501a76c6f72615f69"
            "6404a66d656469756da3475055a96c6f72615f6e616d65a373716caa65787472615f6b6579739292a373716c92d92030"
            "30303030303030303030303030303130303030303030303030303030303032fd91a373716c00");
}

TEST(EventMessage, ANumberHasEightBytes) {
  EXPECT_EQ(hex_of_bytes(number_bytes(258)), "0000000000000102");
  EXPECT_EQ(hex_of_bytes(number_bytes(UINT64_MAX)), "ffffffffffffffff");
}

}  // namespace
}  // namespace tessera
