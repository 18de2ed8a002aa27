// Catches: a language model that places images differently from Hugging Face when the engine computes a prompt in one
// of these ways (with graphs or eagerly, whole or in chunks that end within an image, alone or in a batch, from the
// prefix cache, after a preemption); an image that is mistaken for another image; an image that is encoded again
// although its rows are cached.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <set>

#include "golden_cases.h"
#include "image_golden.h"
#include "image_ways.h"
#include "tessera/base/testing/scratch_dir.h"
#include "tessera/device/testing/fake_device.h"
#include "tessera/runner/verify/soak.h"
#include "tessera/runner/verify/verify.h"

namespace tessera {
namespace {

using testing::Distance;
using testing::generating;
using testing::GoldenEncoder;
using testing::ImageGolden;
using testing::kWays;
using testing::options_for;
using testing::run_one;
using testing::scored;
using testing::Way;

// An engine whose encoder returns the golden rows.
struct Seeing {
  std::shared_ptr<GoldenEncoder> encoder;
  std::unique_ptr<Engine> engine;
};
Seeing make(const ImageGolden& golden, EngineOptions options) {
  auto encoder = std::make_shared<GoldenEncoder>(golden, ir::DType::kFloat32);
  options.image_encoder = encoder;
  Result<std::unique_ptr<Engine>> engine = Engine::create(std::move(options));
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  return {.encoder = std::move(encoder), .engine = engine.ok() ? *std::move(engine) : nullptr};
}

Request of_text(std::int32_t salt, std::int64_t tokens, std::int64_t new_tokens) {
  Request request{.stop = {.max_new_tokens = new_tokens, .ignore_eos = true}};
  for (std::int32_t i = 0; i < tokens; ++i) request.prompt.emplace_back((salt * 61 + i * 17 + i * i) % 500);
  return request;
}

class ImageGoldens : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const std::string absent = testing::absent_golden(GetParam()); !absent.empty()) GTEST_SKIP() << absent;
  }
};

TEST_P(ImageGoldens, PositionsAndRowsAreHandedOut) {
  const ImageGolden golden = testing::read_image_golden(GetParam());
  const Seeing seeing = make(golden, options_for(golden));
  for (std::size_t i = 0; i < golden.prompts.size(); ++i) {
    Request request = scored(golden, i);
    request.return_images = true;
    for (int time = 0; time < 2; ++time) {
      const Completion done = run_one(*seeing.engine, request);
      EXPECT_EQ(done.rope_positions, golden.positions(i)) << "prompt " << i;
      ASSERT_EQ(done.image_rows.size(), golden.images[i].size());
      for (std::size_t k = 0; k < done.image_rows.size(); ++k)
        EXPECT_EQ(done.image_rows[k], golden.rows.at(golden.images[i][k].patches->content)) << "image " << k;
    }
  }
}

TEST_P(ImageGoldens, Float32LogitsOnEveryWay) {
  const ImageGolden golden = testing::read_image_golden(GetParam());
  for (const Way way : kWays) {
    const Seeing seeing = make(golden, options_for(golden, way));
    ASSERT_NE(seeing.engine, nullptr);
    std::vector<Request> all;
    for (std::size_t i = 0; i < golden.prompts.size(); ++i) {
      all.push_back(scored(golden, i));
      all.push_back(of_text(static_cast<std::int32_t>(i), 9, 20));  // decodes beside the images' chunks
    }
    for (const bool together : {false, true}) {
      std::vector<Completion> done;
      if (together) {
        done = *seeing.engine->run(all);
      } else {
        for (const Request& request : all) done.push_back(run_one(*seeing.engine, request));
      }
      Distance worst;
      for (std::size_t i = 0; i < golden.prompts.size(); ++i) {
        const Distance d = testing::distance(done[2 * i].logits, golden.stored_rows(i));
        worst.absolute = std::max(worst.absolute, d.absolute);
      }
      std::printf("%s way %d %s: greatest difference %.2e\n", GetParam(), static_cast<int>(way),
                  together ? "batched" : "alone", worst.absolute);
      EXPECT_LE(worst.absolute, 1e-4);
    }
    for (const auto& [key, forwards] : seeing.engine->runner().counters().by_key) {
      const bool graphs = way == Way::kGraphs || way == Way::kChunked || way == Way::kFullGraph;
      EXPECT_EQ(key.runner == RunnerKind::kEager, !graphs) << runner_kind_name(key.runner) << " " << key.size;
    }
  }
}

TEST_P(ImageGoldens, GreedyTokensOnEveryWay) {
  const ImageGolden golden = testing::read_image_golden(GetParam());
  for (const Way way : kWays) {
    const Seeing seeing = make(golden, options_for(golden, way));
    std::vector<Request> requests;
    for (std::size_t i = 0; i < golden.prompts.size(); ++i) requests.push_back(generating(golden, i));
    const Result<std::vector<Completion>> together = seeing.engine->run(requests);
    ASSERT_TRUE(together.ok()) << together.status().to_string();
    for (std::size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ((*together)[i].output_ids, golden.greedy[i]) << "prompt " << i << " batched";
      EXPECT_EQ(run_one(*seeing.engine, requests[i]).output_ids, golden.greedy[i]) << "prompt " << i << " alone";
    }
  }
}

TEST_P(ImageGoldens, ASecondTimeNothingIsEncoded) {
  const ImageGolden golden = testing::read_image_golden(GetParam());
  for (const bool prefix_cache : {true, false}) {
    EngineOptions options = options_for(golden);
    options.disable_radix_cache = !prefix_cache;
    const Seeing seeing = make(golden, options);
    int images = 0;
    for (int time = 0; time < 2; ++time) {
      for (std::size_t i = 0; i < golden.prompts.size(); ++i) {
        const Completion done = run_one(*seeing.engine, generating(golden, i));
        EXPECT_EQ(done.output_ids, golden.greedy[i]) << "prompt " << i << " time " << time;
        const bool from_cache = time == 1 && prefix_cache;
        EXPECT_GE(done.cached_tokens, from_cache ? golden.images[i].back().first_token : 0) << "prompt " << i;
        images += time == 0 ? static_cast<int>(golden.images[i].size()) : 0;
      }
      EXPECT_EQ(seeing.encoder->encoded, images) << "time " << time << (prefix_cache ? "" : ", no prefix cache");
    }
    const ImageStats stats = seeing.engine->stats().images;
    EXPECT_EQ(stats.encoded, images);
    EXPECT_EQ(stats.images, 2 * images);
    EXPECT_EQ(stats.cache_hits, prefix_cache ? 0 : images);
  }
}

// The two prompts differ only in their first image. Both first images have the same size.
TEST_P(ImageGoldens, AnotherImageOfTheSameSizeIsAnotherOne) {
  ImageGolden golden = testing::read_image_golden(GetParam());
  Request other = generating(golden, 0);
  const PromptImage first = other.images[0];
  std::vector<float> rows = golden.rows.at(first.patches->content);
  std::reverse(rows.begin(), rows.end());
  other.images[0] = testing::add_image(golden, first.first_token, first.patches->grid, rows);
  const auto logits_of = [&](Engine& engine, Request request) {
    request.stop = {};
    request.score = true;
    request.score_from = std::ssize(request.prompt) - 1;
    return run_one(engine, request);
  };
  const Seeing alone = make(golden, options_for(golden));
  const std::vector<float> want = logits_of(*alone.engine, other).logits;
  const Seeing seeing = make(golden, options_for(golden));
  EXPECT_EQ(run_one(*seeing.engine, generating(golden, 0)).output_ids, golden.greedy[0]);
  const Completion done = logits_of(*seeing.engine, other);
  EXPECT_LE(done.cached_tokens, first.first_token);
  EXPECT_EQ(seeing.encoder->encoded, 2);
  EXPECT_LE(testing::distance(done.logits, want).absolute, 1e-4);
  EXPECT_GT(testing::distance(logits_of(*seeing.engine, generating(golden, 0)).logits, want).absolute, 1e-2)
      << "the image makes no difference";
  EXPECT_EQ(run_one(*seeing.engine, generating(golden, 0)).output_ids, golden.greedy[0]);
}

// A request of higher priority first preempts a request whose image is being computed, and later a request that decodes
// after its images.
TEST_P(ImageGoldens, GreedyTokensAfterPreemptions) {
  const ImageGolden golden = testing::read_image_golden(GetParam());
  for (const bool cached : {false, true}) {
    EngineOptions options = options_for(golden, Way::kChunked);
    options.max_running_requests = 1;
    options.chunked_prefill_size = 8;
    options.graphs.piecewise_tokens = {4, 8};
    options.disable_radix_cache = !cached;
    const Seeing seeing = make(golden, options);
    for (std::size_t i = 0; i < golden.prompts.size(); ++i) {
      const std::int64_t before = seeing.engine->stats().preemptions;
      const RequestId id = *seeing.engine->submit(generating(golden, i));
      for (std::int32_t step = 0; !seeing.engine->idle(); ++step) {
        if (step == 1 || step == 14) {
          Request urgent = step == 1 ? generating(golden, (i + 1) % golden.prompts.size()) : of_text(step, 20, 2);
          urgent.priority = 1;
          ASSERT_TRUE(seeing.engine->submit(urgent).ok());
        }
        ASSERT_TRUE(seeing.engine->step().ok());
      }
      EXPECT_EQ(seeing.engine->take(id)->output_ids, golden.greedy[i]) << "prompt " << i << (cached ? " cached" : "");
      EXPECT_GT(seeing.engine->stats().preemptions, before) << "nothing was tried";
    }
  }
}

// The image cache has only as many rows as the largest image needs, so the images of a prompt must use these rows one
// after another.
TEST_P(ImageGoldens, FewRowsAreShared) {
  const ImageGolden golden = testing::read_image_golden(GetParam());
  EngineOptions options = options_for(golden, Way::kChunked);
  options.image_cache_bytes = 1;
  options.disable_radix_cache = true;
  const Seeing seeing = make(golden, options);
  std::vector<Request> requests;
  for (std::size_t i = 0; i < golden.prompts.size(); ++i) requests.push_back(generating(golden, i));
  for (int round = 0; round < 3; ++round) {
    const Result<std::vector<Completion>> done = seeing.engine->run(requests);
    ASSERT_TRUE(done.ok()) << done.status().to_string();
    for (std::size_t i = 0; i < requests.size(); ++i) EXPECT_EQ((*done)[i].output_ids, golden.greedy[i]) << i;
  }
  std::int64_t largest = 0;
  for (const auto& images : golden.images)
    for (const PromptImage& image : images) largest = std::max(largest, image.patches->tokens());
  EXPECT_EQ(seeing.engine->runner().embedding_rows(), largest);
}

TEST_P(ImageGoldens, AFailingTowerFailsItsRequestAlone) {
  const ImageGolden golden = testing::read_image_golden(GetParam());
  const Seeing seeing = make(golden, options_for(golden));
  seeing.encoder->failure = "no current";
  const Result<std::vector<Completion>> failed = seeing.engine->run(std::vector{generating(golden, 0)});
  EXPECT_NE(failed.status().message().find("vision tower: no current"), std::string::npos) << failed.status().message();
  seeing.encoder->failure = nullptr;
  EXPECT_EQ(run_one(*seeing.engine, generating(golden, 0)).output_ids, golden.greedy[0]);
}

// In round n, the device loses the n-th replay of a graph while the next forward is in flight.
TEST_P(ImageGoldens, ALostForwardLeavesNoRowsToOtherPrompts) {
  const ImageGolden golden = testing::read_image_golden(GetParam());
  EngineOptions options = options_for(golden, Way::kChunked);
  options.device = "cpu";
  options.image_encoder = std::make_shared<GoldenEncoder>(golden, ir::DType::kFloat32);
  std::unique_ptr<FakeDevice> made = FakeDevice::create({}, {.threads = 1}).value();
  FakeDevice& device = *made;
  const std::unique_ptr<Engine> engine = Engine::create(options, std::move(made)).value();
  int failures = 0;
  bool past_the_last = false;
  for (int n = 1; n < 60 && !past_the_last; ++n) {
    engine->flush_prefix_cache();
    std::vector<RequestId> ids;
    for (const std::size_t i : {0, 1}) ids.push_back(engine->submit(generating(golden, i)).value());
    device.set_plan({.replay_lost_at = n});
    std::set<RequestId> failed;
    while (!engine->idle()) {
      const std::span<RequestEvent> events = engine->step().value();
      for (const RequestEvent& event : events)
        if (event.finish == FinishReason::kError) failed.insert(event.request);
    }
    past_the_last = device.counts().faults == 0;
    device.set_plan({});
    failures += failed.empty() ? 0 : 1;
    for (const std::size_t i : {0, 1}) {
      const std::optional<Completion> done = engine->take(ids[i]);
      if (!failed.contains(ids[i])) {
        EXPECT_EQ(done->output_ids, golden.greedy[i]) << "prompt " << i << ", replay " << n;
      }
      EXPECT_EQ(run_one(*engine, generating(golden, i)).output_ids, golden.greedy[i]) << "after replay " << n;
    }
  }
  EXPECT_GT(failures, 3);
}

TEST_P(ImageGoldens, WhatDoesNotFitIsRefused) {
  const ImageGolden golden = testing::read_image_golden(GetParam());
  const Seeing seeing = make(golden, options_for(golden));
  const auto refused = [&](const std::function<void(Request&)>& change, const char* message) {
    Request request = generating(golden, 0);
    change(request);
    const Status status = seeing.engine->submit(std::move(request)).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << message;
    EXPECT_NE(status.message().find(message), std::string::npos) << status.message();
  };
  const std::int64_t first = golden.images[0][0].first_token;
  refused([&](Request& r) { r.images[0].first_token = first - 1; }, "needs the id 505");
  refused([&](Request& r) { r.images[0].first_token = first + 1; }, "none of the 1 images is there");
  refused([&](Request& r) { r.prompt.erase(r.prompt.begin() + first); }, "needs the id 505");
  refused([&](Request& r) { r.prompt.emplace_back(505); }, "none of the 1 images is there");
  refused([&](Request& r) { r.images.push_back(r.images[0]); }, "image 1 takes prompt tokens");
  refused([&](Request& r) { r.images[0].first_token = 1000; }, "image 0 takes prompt tokens 1000");
  refused([&](Request& r) { r.input_embeds.resize(64); }, "input_embeds and images");
  seeing.encoder->refusal = "too many patches";
  refused([](Request&) {}, "image 0: too many patches");
  EngineOptions text = options_for(golden);
  text.model_path = testing::golden_path("qwen3");
  const Seeing blind = make(golden, text);
  ASSERT_NE(blind.engine, nullptr);
  const Status status = blind.engine->submit(generating(golden, 0)).status();
  EXPECT_NE(status.message().find("it is a model of text alone"), std::string::npos) << status.message();
}

TEST_P(ImageGoldens, VerifyAndSoakPass) {
  const ImageGolden golden = testing::read_image_golden(GetParam());
  const Seeing seeing = make(golden, options_for(golden));
  const Result<VerifyReport> report = verify(seeing.engine->runner(), /*show_progress=*/false);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  for (const VerifyRow& row : report->rows) EXPECT_EQ(row.difference, "") << row.runner << " " << row.size;
  const Result<SoakReport> soaked = soak(seeing.engine->runner(), {.batches = 200, .seed = 3, .tolerance = 1e-3});
  ASSERT_TRUE(soaked.ok()) << soaked.status().to_string();
  EXPECT_TRUE(soaked->failures.empty()) << soaked->failures[0];
  EXPECT_GT(soaked->images.encoded, 20);
  EXPECT_GT(soaked->images.cache_hits, 5);
  EXPECT_GT(soaked->images.graph_forwards, 10);
}

// Loads the checkpoint as a text model. The graph of a text model takes one position for each token, and the graph of
// an image model takes three (time, height and width).
TEST(TextOfAnImageModel, HasTheLogitsOfPlainPositionsToTheBit) {
  const ImageGolden golden = testing::read_image_golden("qwen2.5-vl");
  const Json whole = *Json::read_file(golden.folder + "/config.json");
  Json config = *whole.find("text_config");
  config.set("architectures", Json::Array{Json("Qwen2ForCausalLM")});
  config.set("tie_word_embeddings", *whole.find("tie_word_embeddings"));
  config.set("eos_token_id", nullptr);
  config.set("bos_token_id", nullptr);
  Json rotation = *config.find("rope_parameters");
  rotation.set("type", nullptr);
  config.set("rope_parameters", rotation);
  const test::ScratchDir plain;
  plain.write("config.json", config.dump());
  std::filesystem::create_symlink(golden.folder + "/model.safetensors", plain.path() + "/model.safetensors");
  for (const Way way : {Way::kGraphs, Way::kChunkedEager}) {
    EngineOptions options = options_for(golden, way);
    const Seeing seeing = make(golden, options);
    options.model_path = plain.path();
    const Seeing reading = make(golden, options);
    ASSERT_NE(reading.engine, nullptr);
    for (const std::int64_t tokens : {1, 16, 61}) {
      Request request = of_text(3, tokens, 0);
      request.score = true;
      EXPECT_EQ(run_one(*seeing.engine, request).logits, run_one(*reading.engine, request).logits) << tokens;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, ImageGoldens, ::testing::Values("qwen2-vl", "qwen2.5-vl", "qwen3.5-vl"), testing::case_name);
INSTANTIATE_TEST_SUITE_P(Larger, ImageGoldens, ::testing::Values("shared/qwen2.5-vl", "shared/qwen3.5-vl"),
                         testing::case_name);

}  // namespace
}  // namespace tessera
