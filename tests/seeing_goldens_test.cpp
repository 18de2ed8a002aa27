// Tests models with a vision tower, from the pixels on. Catches: results that differ from Hugging Face's in one of the
// ways to run a prompt, in one of the dtypes, or on one or two ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "golden_cases.h"
#include "image_golden.h"
#include "image_ways.h"
#include "tessera/ops/testing/ranks.h"
#include "tessera/runner/vision/vision_runner.h"

namespace tessera {
namespace {

using testing::Distance;
using testing::generating;
using testing::ImageGolden;
using testing::kWays;
using testing::options_for;
using testing::run_one;
using testing::scored;
using testing::Way;

// Starts from pixels and checks the vision tower's rows, including the deepstack levels, which later layers of the
// language model add (Qwen3-VL).
class SeeingGoldens : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const std::string absent = testing::absent_golden(GetParam()); !absent.empty()) GTEST_SKIP() << absent;
  }
  // Returns the golden with pixels. read_image_golden() gives patches without pixels. This function fills in the pixels
  // that the golden file stores.
  static ImageGolden with_pixels() {
    ImageGolden golden = testing::read_image_golden(GetParam());
    for (std::size_t i = 0; i < golden.images.size(); ++i) {
      const std::string name = "pixel_values_" + std::to_string(i);
      const std::vector<float> all = golden.floats(name);
      const std::int64_t width = golden.tensors.find(name)->shape[1];
      auto next = all.begin();
      for (PromptImage& image : golden.images[i]) {
        Patches patches = *image.patches;
        const auto end = next + patches.grid.patches() * width;
        patches.values.assign(next, end);
        patches.patch_values = width;
        next = end;
        image.patches = std::make_shared<const Patches>(std::move(patches));
      }
    }
    return golden;
  }
};

std::unique_ptr<Engine> make_seeing(const ImageGolden& golden, Way way, int ranks, const std::string& dtype) {
  EngineOptions options = options_for(golden, way);
  options.tp_size = ranks;
  options.dtype = dtype;
  Result<std::unique_ptr<Engine>> engine = Engine::create(options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  return engine.ok() ? *std::move(engine) : nullptr;
}

// The greatest distances among all prompts.
struct Apart {
  Distance rows;  // distance of images' rows
  Distance logits;
};
void widen(Distance& greatest, const Distance& one) {
  greatest.absolute = std::max(greatest.absolute, one.absolute);
  greatest.relative = std::max(greatest.relative, one.relative);
}

Apart score_all(const ImageGolden& golden, Engine& engine, const char* what) {
  Apart apart;
  const auto hidden = static_cast<std::size_t>(engine.config().hidden_size);
  for (std::size_t i = 0; i < golden.prompts.size(); ++i) {
    Request request = scored(golden, i);
    request.return_images = true;
    const Completion done = run_one(engine, request);
    EXPECT_EQ(done.rope_positions, golden.positions(i));
    for (std::size_t k = 0; k < done.image_rows.size(); ++k) {
      const std::vector<float>& want = golden.rows.at(golden.images[i][k].patches->content);
      const std::size_t width = done.image_rows[k].size() / (want.size() / hidden);
      std::vector<float> embeddings;
      for (std::size_t row = 0; row < want.size() / hidden; ++row)
        embeddings.insert(embeddings.end(), done.image_rows[k].begin() + static_cast<std::ptrdiff_t>(row * width),
                          done.image_rows[k].begin() + static_cast<std::ptrdiff_t>(row * width + hidden));
      widen(apart.rows, testing::distance(embeddings, want));
    }
    widen(apart.logits, testing::distance(done.logits, golden.stored_rows(i)));
  }
  std::printf("%s %s: of rows %.2e absolute, %.2e relative, of logits %.2e, %.2e\n", golden.folder.c_str(), what,
              apart.rows.absolute, apart.rows.relative, apart.logits.absolute, apart.logits.relative);
  return apart;
}

void expect_seen(const ImageGolden& golden, Way way, int ranks) {
  const std::unique_ptr<Engine> engine = make_seeing(golden, way, ranks, "float32");
  ASSERT_NE(engine, nullptr);
  const Apart apart = score_all(golden, *engine, "in float32");
  EXPECT_LE(apart.rows.absolute, 1e-4);
  EXPECT_LE(apart.logits.absolute, 1e-4);
  std::vector<Request> generated;
  for (std::size_t i = 0; i < golden.prompts.size(); ++i) generated.push_back(generating(golden, i));
  for (int round = 0; round < 2; ++round) {
    const Result<std::vector<Completion>> done = engine->run(generated);
    ASSERT_TRUE(done.ok()) << done.status().to_string();
    for (std::size_t i = 0; i < generated.size(); ++i)
      EXPECT_EQ((*done)[i].output_ids, golden.greedy[i]) << "prompt " << i << " round " << round;
  }
}

TEST_P(SeeingGoldens, LogitsAndGreedyTokensFromPixels) {
  for (const Way way : kWays) expect_seen(with_pixels(), way, 1);
}

TEST_P(SeeingGoldens, Bfloat16IsCloseOnEveryWay) {
  const ImageGolden golden = with_pixels();
  for (const Way way : kWays) {
    const std::unique_ptr<Engine> engine = make_seeing(golden, way, 1, "bfloat16");
    ASSERT_NE(engine, nullptr);
    const Apart apart = score_all(golden, *engine, "in bfloat16");
    EXPECT_LE(apart.rows.relative, 3e-2) << static_cast<int>(way);
    EXPECT_LE(apart.logits.relative, 3e-2) << static_cast<int>(way);
    EXPECT_GE(apart.logits.absolute, 1e-5) << "it was computed in float32";
  }
}

// An answer reports no computation for an image whose rows were cached.
TEST_P(SeeingGoldens, AnswersSayHowTheirImagesRan) {
  const ImageGolden golden = with_pixels();
  for (const Way way : {Way::kGraphs, Way::kEager}) {
    const std::unique_ptr<Engine> engine = make_seeing(golden, way, 1, "float32");
    ASSERT_NE(engine, nullptr);
    const auto with_images = std::ranges::find_if(golden.images, [](const auto& images) { return !images.empty(); });
    const auto i = static_cast<std::size_t>(with_images - golden.images.begin());
    Request request = generating(golden, i);
    EXPECT_TRUE(run_one(*engine, request).tower_uses.by_key().empty()) << "nobody asked";
    const std::unique_ptr<Engine> fresh = make_seeing(golden, way, 1, "float32");
    ASSERT_NE(fresh, nullptr);
    request.return_graph_info = true;
    const TowerCounts uses = run_one(*fresh, request).tower_uses;
    const VisionReason reason = way == Way::kEager ? VisionReason::kGraphsDisabled : VisionReason::kReplayed;
    EXPECT_EQ(uses.by_key().size(), 1U);
    EXPECT_EQ(uses.of(reason).images, std::ssize(*with_images));
    std::int64_t patches = 0;
    for (const PromptImage& image : *with_images) patches += image.patches->grid.patches();
    EXPECT_EQ(uses.of(reason).patches, patches);
    EXPECT_EQ(uses.of(reason).forwards, fresh->stats().images.forwards);
    EXPECT_TRUE(run_one(*fresh, request).tower_uses.by_key().empty()) << "its rows were kept";
  }
}

// Checks that images and prompts in chunks replay graphs on one stream: the tower's graphs run between those of the
// language model.
TEST_P(SeeingGoldens, TowerAndPiecewisePrefillReplayOnOneStream) {
  const ImageGolden golden = with_pixels();
  EngineOptions options = options_for(golden, Way::kChunked);
  options.context_length = 256;
  options.graphs.capture = CaptureMode::kEager;
  const std::unique_ptr<Engine> engine = *Engine::create(options);
  ModelRunner& runner = engine->runner();
  ASSERT_NE(runner.vision(), nullptr);
  EXPECT_EQ(&runner.vision()->stream(), &runner.stream());
  std::vector<Request> requests;
  for (std::size_t i = 0; i < golden.prompts.size(); ++i) requests.push_back(generating(golden, i));
  const Result<std::vector<Completion>> done = engine->run(requests);
  ASSERT_TRUE(done.ok()) << done.status().to_string();
  for (std::size_t i = 0; i < requests.size(); ++i) EXPECT_EQ((*done)[i].output_ids, golden.greedy[i]) << i;
  const ImageStats images = engine->stats().images;
  EXPECT_GT(images.forwards, 0);
  EXPECT_EQ(images.by_reason.of(VisionReason::kReplayed).forwards, images.forwards);
  std::int64_t prefills = 0;
  std::int64_t decodes = 0;
  for (const auto& [key, forwards] : runner.counters().by_key) {
    EXPECT_NE(key.runner, RunnerKind::kEager) << key.size;
    (key.runner == RunnerKind::kPrefill ? prefills : decodes) += forwards.forwards;
  }
  EXPECT_GT(prefills, 1);
  EXPECT_GT(decodes, 1);
}

// Every rank has the tower, and encodes each image by itself.
TEST_P(SeeingGoldens, LogitsAndGreedyTokensFromPixelsOnTwoRanks) {
  if (!testing::has_devices_for(2)) GTEST_SKIP() << "needs 2 GPUs";
  for (const Way way : {Way::kGraphs, Way::kChunked}) expect_seen(with_pixels(), way, 2);
}

// Loads Qwen2-VL with a tensor of its tower under another name, or with another size in its config.
TEST(SeeingCheckpoint, AWrongTensorOfTheTowerIsNamed) {
  const std::string folder = testing::golden_path("qwen2-vl");
  const auto refusal = [&](const std::string& config, std::string weights) {
    const test::ScratchDir copy;
    copy.write("config.json", config);
    copy.write("model.safetensors", weights);
    const auto engine = Engine::create({.model_path = copy.path(), .context_length = 256});
    EXPECT_FALSE(engine.ok());
    return engine.status().message();
  };
  const std::string name = "visual.blocks.1.mlp.fc2.bias";
  const std::string weights = *read_text_file(folder + "/model.safetensors");
  std::string renamed = weights;
  renamed.replace(renamed.find(name), name.size(), "visual.blocks.1.mlp.fc9.bias");
  Json config = *Json::read_file(folder + "/config.json");
  EXPECT_NE(refusal(config.dump(), renamed).find(name), std::string::npos) << refusal(config.dump(), renamed);
  Json vision = *config.find("vision_config");
  vision.set("embed_dim", std::int64_t{48});
  config.set("vision_config", vision);
  const std::string wide = refusal(config.dump(), weights);
  EXPECT_NE(wide.find("visual."), std::string::npos) << wide;
  EXPECT_NE(wide.find("48"), std::string::npos) << wide;
}

INSTANTIATE_TEST_SUITE_P(, SeeingGoldens,
                         ::testing::Values("qwen2-vl", "qwen2.5-vl", "qwen3-vl", "qwen3-vl-moe", "qwen3.5-vl"),
                         testing::case_name);
// GGUF files of these models, with the tower in a projector.
INSTANTIATE_TEST_SUITE_P(Gguf, SeeingGoldens,
                         ::testing::Values("gguf/qwen2-vl", "gguf/qwen2.5-vl", "gguf/qwen3-vl", "gguf/qwen3.5-vl"),
                         testing::case_name);
INSTANTIATE_TEST_SUITE_P(Larger, SeeingGoldens,
                         ::testing::Values("shared/qwen2.5-vl", "shared/qwen3-vl", "shared/qwen3.5-vl"),
                         testing::case_name);

}  // namespace
}  // namespace tessera
