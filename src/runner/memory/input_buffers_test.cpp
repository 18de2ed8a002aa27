// Tests the static buffers from which graphs read their inputs. Catches: padding rows that keep the values of the
// previous step; an input that is written over its neighbour or with the wrong width; addresses that change although
// graphs refer to them; and an input that is written although it exceeds the limits.
#include "tessera/runner/memory/input_buffers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "tessera/base/float16.h"
#include "tessera/device/testing/fake_device.h"
#include "tessera/model/model.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class InputBuffersTest : public ::testing::Test {
 protected:
  InputBuffersTest() {
    EXPECT_TRUE(step_.allocate(*device_, *stream_).ok());
    buffers_.add_to(addresses_);
  }

  // Reads the first `count` elements of an input from the device, for a forward of `count` tokens and rows.
  template <class T>
  std::vector<T> read(std::string_view name, std::int64_t count) {
    EXPECT_TRUE(step_.upload(*stream_).ok());
    std::vector<T> values(static_cast<std::size_t>(count));
    EXPECT_TRUE(
        stream_->download(values.data(), addresses_.find(name, bucket(count, count)), values.size() * sizeof(T)).ok());
    return values;
  }
  std::vector<std::int32_t> ints(std::string_view name, std::int64_t count) { return read<std::int32_t>(name, count); }
  static ir::Bucket bucket(std::int64_t tokens, std::int64_t rows) {
    ir::Bucket made;
    made[ir::Symbol::kTokens] = tokens;
    made[ir::Symbol::kRows] = rows;
    return made;
  }
  // Fills all inputs with values, as an earlier step would do.
  void dirty() {
    ForwardBatch full = batch(8);
    ASSERT_TRUE(buffers_.stage_tokens({.batch = full, .padding_id = TokenId(77)}, 8).ok());
    const std::vector<std::int32_t> rows = {7, 7, 7, 7};
    const std::vector<SampleRow> sampling(
        4, {.temperature = 7, .top_k = 7, .top_p = 7, .min_p = 7, .seed = 7, .choice = 7, .position = 7});
    ASSERT_TRUE(buffers_.stage_rows(rows, sampling, 4).ok());
    ASSERT_TRUE(step_.upload(*stream_).ok());
  }
  static ForwardBatch batch(std::int32_t tokens) {
    ForwardBatch b;
    CacheGroupBatch full, window;
    for (std::int32_t i = 0; i < tokens; ++i) {
      b.input_ids.emplace_back(100 + i);
      b.input_rows.push_back(i % 2 == 0 ? i : -1);
      b.positions.push_back(20 + i);
      full.slots.emplace_back(40 + i);
      window.slots.emplace_back(60 + i);
    }
    b.groups = {full, window};
    return b;
  }

  std::unique_ptr<FakeDevice> device_ = FakeDevice::create({}, {.threads = 1}).value();
  std::unique_ptr<Stream> stream_ = device_->create_stream("test").value();
  StepBuffer step_;
  InputBuffers buffers_ = InputBuffers::create(*device_,
                                               {.max_tokens = 8,
                                                .max_requests = 3,
                                                .max_rows = 4,
                                                .cache_groups = {"full", "window.24"},
                                                .extra = {.rope_positions = true, .adapters = true}},
                                               step_)
                              .value();
  static constexpr std::array kNames = {
      "input_ids",        "input_rows",      "positions",      "slots.full",     "slots.window.24", "last_ids",
      "wanted_rows",      "temperature",     "top_k",          "top_p",          "min_p",           "seed",
      "choice",           "sample_position", "embedding_rows", "rope_positions", "row_marks",       "adapter_rows",
      "adapter_head_rows"};
  ExternalValues addresses_;
};

TEST_F(InputBuffersTest, StagesTokensAndClearsThePadding) {
  dirty();
  ASSERT_TRUE(buffers_.stage_tokens({.batch = batch(3), .padding_id = TokenId(9)}, 6).ok());
  EXPECT_THAT(ints("input_ids", 6), ElementsAre(100, 101, 102, 9, 9, 9));
  EXPECT_THAT(ints("input_rows", 6), ElementsAre(0, -1, 2, -1, -1, -1));
  EXPECT_THAT(ints("positions", 6), ElementsAre(20, 21, 22, 0, 0, 0));
  EXPECT_THAT(ints("slots.full", 6), ElementsAre(40, 41, 42, 0, 0, 0)) << "slot 0 is no request's";
  EXPECT_THAT(ints("slots.window.24", 6), ElementsAre(60, 61, 62, 0, 0, 0));
}

TEST_F(InputBuffersTest, StagesRowsAndClearsThePadding) {
  dirty();
  const std::vector<std::int32_t> rows = {2, 5};
  const std::vector<SampleRow> sampling = {
      {.temperature = 0.5F,
       .top_k = 3,
       .top_p = 0.25F,
       .min_p = 0.125F,
       .seed = std::numeric_limits<std::int64_t>::max(),
       .choice = 1,
       .position = 11},
      {.temperature = 0.75F, .top_k = 4, .top_p = 0.5F, .min_p = 0.375F, .seed = -5, .choice = 2, .position = 12}};
  ASSERT_TRUE(buffers_.stage_rows(rows, sampling, 4).ok());
  EXPECT_THAT(ints("wanted_rows", 4), ElementsAre(2, 5, -1, -1));
  EXPECT_THAT(ints("row_marks", 4), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(read<float>("temperature", 4), ElementsAre(0.5F, 0.75F, 0, 0));
  EXPECT_THAT(ints("top_k", 4), ElementsAre(3, 4, 0, 0));
  EXPECT_THAT(read<float>("top_p", 4), ElementsAre(0.25F, 0.5F, 1, 1));
  EXPECT_THAT(read<float>("min_p", 4), ElementsAre(0.125F, 0.375F, 0, 0));
  EXPECT_THAT(read<std::int64_t>("seed", 4), ElementsAre(std::numeric_limits<std::int64_t>::max(), -5, 0, 0));
  EXPECT_THAT(ints("choice", 4), ElementsAre(1, 2, 0, 0));
  EXPECT_THAT(ints("sample_position", 4), ElementsAre(11, 12, 0, 0));
}

TEST_F(InputBuffersTest, WithoutSamplingEveryRowIsGreedy) {
  dirty();
  const std::vector<std::int32_t> rows = {2, 5};
  ASSERT_TRUE(buffers_.stage_rows(rows, {}, 3).ok());
  EXPECT_THAT(read<float>("temperature", 3), Each(0.0F));
  EXPECT_THAT(ints("wanted_rows", 3), ElementsAre(2, 5, -1));
  const std::vector<SampleRow> first(1, {.temperature = 2});
  ASSERT_TRUE(buffers_.stage_rows(rows, first, 3).ok());
  EXPECT_THAT(read<float>("temperature", 3), ElementsAre(2, 0, 0)) << "the first so many are sampled";
}

TEST_F(InputBuffersTest, StagesPositionsInThreeDimensions) {
  dirty();
  const ForwardBatch three = batch(3);
  const RopeAxes axes{{{1, 2, 3}, {4, 5, 6}, {7, 8, 9}}};
  ASSERT_TRUE(buffers_.stage_tokens({.batch = three, .rope_positions = axes}, 5).ok());
  EXPECT_TRUE(step_.upload(*stream_).ok());
  std::vector<std::int32_t> values(15);
  const DeviceAddress at = addresses_.find("rope_positions", bucket(5, 5));
  ASSERT_TRUE(stream_->download(values.data(), at, values.size() * 4).ok());
  EXPECT_THAT(values, ElementsAre(1, 2, 3, 0, 0, 4, 5, 6, 0, 0, 7, 8, 9, 0, 0));
  EXPECT_THAT(ints("positions", 5), ElementsAre(20, 21, 22, 0, 0)) << "its neighbour";
  EXPECT_THAT(ints("slots.full", 5), ElementsAre(40, 41, 42, 0, 0));
  ASSERT_TRUE(buffers_.stage_tokens({.batch = three}, 3).ok());
  EXPECT_TRUE(step_.upload(*stream_).ok());
  values.resize(9);
  ASSERT_TRUE(
      stream_->download(values.data(), addresses_.find("rope_positions", bucket(3, 3)), values.size() * 4).ok());
  EXPECT_THAT(values, ElementsAre(20, 21, 22, 20, 21, 22, 20, 21, 22)) << "those of text";
}

TEST_F(InputBuffersTest, EmbeddingRowsAreMinusOneWithoutEmbeddings) {
  dirty();
  ASSERT_TRUE(buffers_.stage_tokens({.batch = batch(3), .padding_id = TokenId(9)}, 5).ok());
  EXPECT_THAT(ints("embedding_rows", 5), Each(-1));
  ForwardBatch b = batch(3);
  b.embedding_rows = {-1, 40, 7};
  ASSERT_TRUE(buffers_.stage_tokens({.batch = b, .padding_id = TokenId(9)}, 5).ok());
  EXPECT_THAT(ints("embedding_rows", 5), ElementsAre(-1, 40, 7, -1, -1));
}

TEST_F(InputBuffersTest, RowsHaveTheAdaptersOfTheirTokens) {
  ForwardBatch b = batch(3);
  b.adapter_slots = {2, -1, 5};
  ASSERT_TRUE(buffers_.stage_tokens({.batch = b}, 4).ok());
  EXPECT_THAT(ints(input_names::kAdapterRows, 4), ElementsAre(2, -1, 5, -1));
  ASSERT_TRUE(buffers_.stage_rows(std::vector<std::int32_t>{2, 0, 7}, {}, 4).ok());
  EXPECT_THAT(ints(input_names::kAdapterHeadRows, 4), ElementsAre(5, 2, -1, -1));
  ASSERT_TRUE(buffers_.stage_tokens({.batch = batch(3)}, 4).ok());
  EXPECT_THAT(ints(input_names::kAdapterRows, 4), Each(-1));
  ASSERT_TRUE(buffers_.stage_rows(std::vector<std::int32_t>{2, 0}, {}, 4).ok());
  EXPECT_THAT(ints(input_names::kAdapterHeadRows, 4), Each(-1));
}

TEST_F(InputBuffersTest, RefusesOneMoreThanAFullBuffer) {
  ASSERT_TRUE(buffers_.stage_tokens({.batch = batch(8), .padding_id = TokenId(0)}, 8).ok());
  EXPECT_EQ(ints("input_ids", 8).back(), 107);
  const Status tokens = buffers_.stage_tokens({.batch = batch(9), .padding_id = TokenId(0)}, 9);
  EXPECT_THAT(tokens.message(), HasSubstr("static inputs hold 8 tokens, 9 were staged"));
  const Status rows = buffers_.stage_rows({}, {}, 5);
  EXPECT_THAT(rows.message(), HasSubstr("static inputs hold 4 wanted rows, 5 were staged"));
  EXPECT_EQ(ints("input_ids", 8).back(), 107) << "a refused step writes nothing";
}

// Checks for every bucket that no inputs overlap, and that the inputs of one forward fill one range without gaps.
TEST_F(InputBuffersTest, PacksABucketsInputsAroundOneBoundary) {
  const auto is_row = [](std::string_view name) {
    return name == "wanted_rows" || name == "row_marks" || name == "temperature" || name == "top_k" ||
           name == "top_p" || name == "min_p" || name == "seed" || name == "choice" || name == "sample_position" ||
           name == "adapter_head_rows";
  };
  for (const auto& [tokens, rows] : {std::pair(1, 1), std::pair(8, 4), std::pair(3, 2)}) {
    std::vector<DeviceAddress> row_places, token_places;
    for (const char* name : kNames) {
      const DeviceAddress address = addresses_.find(name, bucket(tokens, rows));
      ASSERT_TRUE(address) << name;
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(address.raw()) % kDeviceAlignment, 0u) << name;
      if (std::string_view(name) == "last_ids") continue;
      (is_row(name) ? row_places : token_places).push_back(address);
    }
    for (std::vector<DeviceAddress>* places : {&row_places, &token_places}) {
      std::sort(places->begin(), places->end());
      EXPECT_EQ(std::adjacent_find(places->begin(), places->end()), places->end());
    }
    EXPECT_EQ(token_places.front(), addresses_.find("input_ids", bucket(8, 4))) << "the fixed place";
    // Each input has so few elements that it takes exactly kDeviceAlignment bytes.
    EXPECT_EQ(token_places.front(), row_places.front() + row_places.size() * kDeviceAlignment);
    EXPECT_EQ(token_places.back(), token_places.front() + (token_places.size() - 1) * kDeviceAlignment);
  }
  EXPECT_EQ(buffers_.bytes(), InputBuffers::bytes_needed(buffers_.limits()));
  EXPECT_EQ(buffers_.bytes(), std::ssize(kNames) * static_cast<std::int64_t>(kDeviceAlignment));
}

TEST_F(InputBuffersTest, KeepsNoMoreIdsThanRequests) {
  std::vector<std::int32_t> sampled = {5, 6, 7, 8};
  const DeviceAddress bytes{reinterpret_cast<std::byte*>(sampled.data())};
  std::vector<TokenId> ids(3);
  ASSERT_TRUE(buffers_.keep_sampled(bytes, 0, 2, *stream_).ok());
  ASSERT_TRUE(buffers_.keep_sampled(bytes + 8, 2, 2, *stream_).ok()) << "one of two has a place";
  ASSERT_TRUE(buffers_.keep_sampled(bytes, 3, 2, *stream_).ok()) << "none has";
  ASSERT_TRUE(buffers_.keep_sampled(bytes, 30, 2, *stream_).ok());
  ASSERT_TRUE(buffers_.download_sampled(ids, *stream_).ok());
  EXPECT_THAT(ids, ElementsAre(TokenId(5), TokenId(6), TokenId(7)));
  ids.resize(4);
  EXPECT_THAT(buffers_.download_sampled(ids, *stream_).message(), AllOf(HasSubstr("3"), HasSubstr("4")));
}

TEST_F(InputBuffersTest, NoMemoryIsAnError) {
  device_->set_plan({.out_of_memory_at = 1});
  StepBuffer step;
  const auto made =
      InputBuffers::create(*device_, {.max_tokens = 8, .max_requests = 3, .max_rows = 4, .cache_groups = {}}, step);
  EXPECT_EQ(made.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(made.status().message(), HasSubstr("last ids"));
}

}  // namespace
}  // namespace tessera
