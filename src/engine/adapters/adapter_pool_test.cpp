// Catches: two adapters with one name; a loaded adapter that is not found; an adapter that is destroyed while requests
// use it; and pinned adapters that leave no slot for other adapters.
#include "tessera/engine/adapters/adapter_pool.h"

#include <gmock/gmock.h>

#include "tessera/base/testing/paths.h"
#include "tessera/engine/engine_test_util.h"

namespace tessera::test {
namespace {

using ::testing::HasSubstr;

class AdapterPoolTest : public ::testing::Test {
 protected:
  // All adapters have the same matrices, because the pool does not read the matrices.
  Status load(const std::string& name, bool pinned = false, bool replace = false) {
    return pool_.load({.name = name, .pinned = pinned, .replace = replace}, content_);
  }
  static std::unique_ptr<Engine> adapter_engine() {
    EngineOptions options = small_options();
    options.adapters = {.enabled = true, .limits = {.slots = 2}, .paths = {}};
    return make_engine(options);
  }

  std::unique_ptr<Engine> engine_ = adapter_engine();
  std::shared_ptr<const Adapter> content_ = *Adapter::load(testing::data_path("adapters/llama-lora/r16-pattern"),
                                                           *engine_->adapter_layout(), engine_->device());
  AdapterSlots slots_{2};
  AdapterPool pool_{slots_};
};

TEST_F(AdapterPoolTest, FindsAdaptersByName) {
  ASSERT_TRUE(load("one").ok());
  ASSERT_TRUE(load("two").ok());
  EXPECT_EQ((*pool_.find("one"))->name, "one");
  EXPECT_EQ(*pool_.find(""), nullptr);
  EXPECT_EQ(pool_.find("three").status().code(), StatusCode::kNotFound);
  EXPECT_THAT(pool_.find("three").status().message(), HasSubstr("loaded: one, two"));
  EXPECT_EQ(pool_.list().size(), 2u);
  EXPECT_EQ(pool_.list()[1].rank, 16);
}

TEST_F(AdapterPoolTest, RefusesEmptyAndTakenNames) {
  EXPECT_THAT(load("").message(), HasSubstr("lora_name"));
  ASSERT_TRUE(load("one").ok());
  EXPECT_THAT(load("one").message(), HasSubstr("load_inplace replaces it"));
  const std::int64_t before = (*pool_.find("one"))->number;
  ASSERT_TRUE(load("one", false, /*replace=*/true).ok());
  EXPECT_GT((*pool_.find("one"))->number, before);
}

TEST_F(AdapterPoolTest, LeavesASlotThatIsNotPinned) {
  ASSERT_TRUE(load("one", /*pinned=*/true).ok());
  EXPECT_THAT(load("two", /*pinned=*/true).message(), HasSubstr("pinned: 2 adapters"));
  ASSERT_TRUE(load("two").ok());
}

TEST_F(AdapterPoolTest, AnUnloadedAdapterLastsUntilItsRequestsEnd) {
  ASSERT_TRUE(load("one").ok());
  std::shared_ptr<ServedAdapter> of_request = *pool_.find("one");
  slots_.acquire(of_request);
  const Result<std::weak_ptr<const ServedAdapter>> unloaded = pool_.unload("one");
  ASSERT_TRUE(unloaded.ok());
  EXPECT_EQ(pool_.find("one").status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(unloaded->expired());
  slots_.release(*of_request);
  of_request.reset();
  EXPECT_TRUE(unloaded->expired());
  EXPECT_EQ(pool_.unload("one").status().code(), StatusCode::kNotFound);
}

TEST_F(AdapterPoolTest, ServesNothingWithoutSlots) {
  AdapterSlots none(0);
  AdapterPool pool(none);
  EXPECT_EQ(pool.load({.name = "one"}, content_).code(), StatusCode::kUnimplemented);
  EXPECT_THAT(pool.find("one").status().message(), HasSubstr("enable_lora"));
}

// The engine reads several folders at once, so a later adapter may be read before an earlier one.
TEST(AdaptersOfTheStart, AreLoadedInOrder) {
  EngineOptions options = small_options();
  options.adapters = {.enabled = true, .limits = {.slots = 2}, .paths = {}};
  const std::string folder = testing::data_path("adapters/llama-lora/r16-pattern");
  for (const char* name : {"f", "e", "d", "c", "b", "a"}) options.adapters.paths.push_back({name, folder});
  const Result<std::unique_ptr<Engine>> engine = Engine::create(options);
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  for (std::size_t i = 0; i < options.adapters.paths.size(); ++i) {
    const std::string& name = options.adapters.paths[i].name;
    EXPECT_EQ((*(*engine)->adapters().find(name))->number, static_cast<std::int64_t>(i + 1)) << name;
  }

  options.adapters.paths[4].path = "/nowhere";
  EXPECT_THAT(Engine::create(options).status().message(), HasSubstr("lora_paths: b=/nowhere"));
  options.adapters.paths[4] = {"e", folder};
  EXPECT_THAT(Engine::create(options).status().message(), HasSubstr("\"e\" is loaded already"));
}

}  // namespace
}  // namespace tessera::test
