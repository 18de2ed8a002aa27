// Catches: adapters that are loaded, listed, chosen or unloaded wrongly over HTTP; faulty adapters that stop the
// server; and an unload that answers while a request still uses the adapter.
#include "tessera/server/adapters/adapter_routes.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <memory>
#include <set>
#include <vector>

#include "tessera/base/testing/scratch_dir.h"
#include "tessera/server/server_test_util.h"

namespace tessera::testing {
namespace {

using ::testing::HasSubstr;

std::string adapter(const std::string& name) { return data_path("adapters/qwen3-lora/" + name); }

// Serves the small qwen3 checkpoint of the reference data (tests/data/goldens). The tests load the adapters that the
// reference data has for this checkpoint.
class AdapterRoutes : public ::testing::Test {
 protected:
  static std::unique_ptr<Engine> make(bool enabled) {
    EngineOptions options{.model_path = data_path("goldens/qwen3"), .device = test_device_name(), .dtype = "float32"};
    options.context_length = 256;
    options.max_running_requests = 4;
    options.graphs.piecewise_tokens = {16, 64};
    options.graphs.decode_batches = {1, 4};
    options.adapters.enabled = enabled;
    Result<std::unique_ptr<Engine>> engine = Engine::create(options);
    EXPECT_TRUE(engine.ok()) << engine.status().to_string();
    return *std::move(engine);
  }

  static std::string load(const std::string& name, const std::string& path, const std::string& more = "") {
    return post("/v1/load_lora_adapter",
                fmt::format(R"({{"lora_name": "{}", "lora_path": "{}"{}}})", name, path, more));
  }
  static std::string unload(const std::string& name) {
    return post("/v1/unload_lora_adapter", fmt::format(R"({{"lora_name": "{}"}})", name));
  }
  static std::string complete(const std::string& model, int tokens = 6) {
    return post("/v1/completions",
                fmt::format(R"({{"model": "{}", "prompt": [5, 6, 7], "max_tokens": {}, "temperature": 0,
                               "ignore_eos": true}})",
                            model, tokens));
  }
  // Returns the token ids of an answer's first choice, as JSON text.
  static std::string ids(const Json& answer) { return answer.find("choices")->as_array()[0].find("token_ids")->dump(); }
  static std::string message(const Json& answer) { return answer.find("error")->find("message")->as_string(); }

  std::unique_ptr<Engine> engine_ = make(true);
};

TEST_F(AdapterRoutes, LoadedAdaptersAreListedAndChosen) {
  const Running running(*engine_);
  const std::string base = ids(running.json(complete("demo")));
  const Json loaded = running.json(load("tuned", adapter("r8-attention")));
  EXPECT_TRUE(loaded.find("success")->as_bool());
  EXPECT_EQ(loaded.find("loaded_adapters")->find("tuned")->as_string(), adapter("r8-attention"));
  const Json models = running.json(get("/v1/models"));
  ASSERT_EQ(models.find("data")->as_array().size(), 2u);
  EXPECT_EQ(models.find("data")->as_array()[1].find("id")->as_string(), "tuned");
  EXPECT_EQ(models.find("data")->as_array()[1].find("parent")->as_string(), "demo");
  EXPECT_EQ(running.json(get("/v1/models/tuned")).find("root")->as_string(), adapter("r8-attention"));

  const Json tuned = running.json(complete("tuned"));
  EXPECT_EQ(tuned.find("model")->as_string(), "tuned");
  EXPECT_NE(ids(tuned), base);
  EXPECT_EQ(ids(running.json(complete("demo:tuned"))), ids(tuned));
  EXPECT_EQ(ids(running.json(complete("demo"))), base);
  const Json generated =
      running.json(post("/generate", R"({"input_ids": [[5, 6, 7], [5, 6, 7]], "lora_path": ["tuned", null],
                            "sampling_params": {"max_new_tokens": 6, "ignore_eos": true, "temperature": 0}})"));
  EXPECT_EQ(generated.as_array()[0].find("output_ids")->dump(), ids(tuned));
  EXPECT_EQ(generated.as_array()[1].find("output_ids")->dump(), base);
}

TEST_F(AdapterRoutes, UnloadedAdaptersAreUnknown) {
  const Running running(*engine_);
  running.json(load("tuned", adapter("r8-attention")));
  running.json(unload("tuned"));
  EXPECT_EQ(running.json(get("/v1/models")).find("data")->as_array().size(), 1u);
  EXPECT_THAT(message(running.json(complete("tuned"), 404)), HasSubstr("\"tuned\" does not exist here"));
  EXPECT_THAT(message(running.json(unload("tuned"), 404)), HasSubstr("no adapter \"tuned\" is loaded"));
}

TEST_F(AdapterRoutes, EveryReplicaHasTheAdapter) {
  const std::unique_ptr<Engine> second = make(true);
  {
    const Running running({engine_.get(), second.get()});
    const std::string base = ids(running.json(complete("demo", 60)));
    // Sends four requests at once, so each of the two replicas gets two of them. Returns all four texts.
    const auto texts_of_both = [&](const std::string& name) {
      std::vector<std::unique_ptr<Client>> clients;
      std::set<std::string> texts;
      for (int i = 0; i < 4; ++i) {
        clients.push_back(std::make_unique<Client>(running.port));
        clients.back()->send(complete(name, 60));
      }
      for (const std::unique_ptr<Client>& client : clients) {
        const Reply reply = client->read_reply();
        EXPECT_EQ(reply.status, 200) << reply.body;
        texts.insert(ids(*Json::parse(reply.body, "answer")));
      }
      return texts;
    };
    running.json(load("tuned", adapter("r8-attention")));
    const std::string tuned = ids(running.json(complete("tuned", 60)));
    EXPECT_NE(tuned, base);
    EXPECT_EQ(texts_of_both("tuned"), std::set{tuned});
    EXPECT_THAT(message(running.json(load("tuned", adapter("r4-all-rslora")), 400)), HasSubstr("load_inplace"));
    running.json(load("tuned", adapter("r4-all-rslora"), R"(, "load_inplace": true)"));
    const std::string replaced = ids(running.json(complete("tuned", 60)));
    EXPECT_NE(replaced, tuned);
    EXPECT_EQ(texts_of_both("tuned"), std::set{replaced});
    EXPECT_EQ(texts_of_both("demo"), std::set{base});
    running.json(unload("tuned"));
    EXPECT_THAT(message(running.json(unload("tuned"), 404)), HasSubstr("no adapter \"tuned\" is loaded"));
    running.json(complete("tuned"), 404);
  }
  for (const Engine* engine : {engine_.get(), second.get()}) {
    EXPECT_GT(engine->stats().steps, 0);
    EXPECT_TRUE(engine->adapters().list().empty());
  }
}

TEST_F(AdapterRoutes, UnloadingLetsRequestsFinish) {
  const Running running(*engine_);
  running.json(load("tuned", adapter("r8-attention")));
  Client client(running.port);
  client.send(complete("tuned", 200));
  const auto is_running = [&] {
    return running.json(get("/v1/loads")).find("loads")->as_array()[0].find("num_running_reqs")->as_int() > 0;
  };
  for (int tries = 0; tries < 1000 && !is_running(); ++tries) continue;
  running.json(unload("tuned"));
  const Reply reply = client.read_reply();
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(Json::parse(reply.body, "answer")->find("usage")->find("completion_tokens")->as_int(), 200);
}

TEST_F(AdapterRoutes, FaultyLoadsAreRefusedByName) {
  const Running running(*engine_);
  const auto refused = [&](const std::string& request) { return message(running.json(request, 400)); };
  EXPECT_THAT(refused(load("tuned", "/nowhere")), HasSubstr("/nowhere is no folder"));
  EXPECT_THAT(refused(load("tuned", data_path("adapters/llama-lora/r16-pattern"))), HasSubstr("adapter_model"));
  EXPECT_THAT(refused(load("demo", adapter("r8-attention"))), HasSubstr("\"lora_name\""));
  EXPECT_THAT(refused(post("/v1/load_lora_adapter", R"({"lora_name": "tuned"})")), HasSubstr("\"lora_path\""));
  running.json(load("tuned", adapter("r8-attention")));
  EXPECT_THAT(refused(load("tuned", adapter("r4-all-rslora"))), HasSubstr("load_inplace replaces it"));
  const std::string first = ids(running.json(complete("tuned")));
  running.json(load("tuned", adapter("r4-all-rslora"), R"(, "load_inplace": true)"));
  EXPECT_NE(ids(running.json(complete("tuned"))), first);
  EXPECT_THAT(message(running.json(post("/generate", R"({"input_ids": [5], "lora_path": "other"})"), 404)),
              HasSubstr("no adapter \"other\" is loaded"));
}

TEST_F(AdapterRoutes, OnlyTheAllowedFolderIsRead) {
  const test::ScratchDir folder;
  std::filesystem::copy(adapter("r8-attention"), folder.path() + "/inside");
  std::filesystem::create_directory_symlink(adapter("r8-attention"), folder.path() + "/link");
  const Running running(*engine_, {.adapter_folder = folder.path()});
  running.json(load("absolute", folder.path() + "/inside"));
  running.json(load("relative", "inside"));
  for (const std::string& outside :
       {adapter("r8-attention"), std::string("link"), folder.path() + "/inside/../../other", std::string("../other")})
    EXPECT_THAT(message(running.json(load("outside", outside), 400)), HasSubstr("(--lora-folder)")) << outside;
  EXPECT_THAT(message(running.json(load("outside", "nothing"), 400)), HasSubstr("is no folder"));
  EXPECT_EQ(running.json(get("/v1/models")).find("data")->as_array().size(), 3u);
}

TEST_F(AdapterRoutes, AnAllowedFolderMustBeOne) {
  const Result<ServedModel> made = ServedModel::create({.adapter_folder = "/nowhere"}, *engine_);
  EXPECT_THAT(made.status().message(), HasSubstr("--lora-folder: /nowhere is no folder"));
}

TEST_F(AdapterRoutes, ServersWithoutAdaptersSaySo) {
  const std::unique_ptr<Engine> plain = make(false);
  const Running running(*plain);
  EXPECT_THAT(message(running.json(load("tuned", adapter("r8-attention")), 400)), HasSubstr("--enable-lora"));
  EXPECT_THAT(message(running.json(post("/generate", R"({"input_ids": [5], "lora_path": "a"})"), 400)),
              HasSubstr("--enable-lora"));
}

}  // namespace
}  // namespace tessera::testing
