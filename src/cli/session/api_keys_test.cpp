// Catches: a server that accepts clients without a key although keys were given; keys that are read wrongly; keys that
// remain where other users can read them.
#include "tessera/cli/session/api_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tessera/cli/parse.h"
#include "tessera/cli/session/effective_config.h"
#include "tessera/runner/capture/registry.h"

namespace tessera::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const char* unset(const char*) { return nullptr; }

class ApiKeys : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  std::string file(const std::string& text) {
    std::ofstream(path_) << text;
    return path_;
  }
  std::string error(const std::vector<std::string>& given, const std::string& path,
                    const std::function<const char*(const char*)>& get = unset) const {
    return read_api_keys(kApiKeys, given, path, get).status().message();
  }

 private:
  std::string path_ = ::testing::TempDir() + "api_keys_test_" + std::to_string(::getpid());
};

TEST_F(ApiKeys, ComeFromFlagsAndFile) {
  EXPECT_THAT(*read_api_keys(kApiKeys, {}, "", unset), IsEmpty());
  EXPECT_THAT(*read_api_keys(kApiKeys, {"a", "b"}, file("# of the gateway\nc\r\n\nd"), unset),
              ElementsAre("a", "b", "c", "d"));
}

TEST_F(ApiKeys, AKeyThatIsGivenTwiceCountsOnce) {
  EXPECT_THAT(*read_api_keys(kApiKeys, {"k", "a", "k"}, file("k\nb\nb"), unset), ElementsAre("k", "a", "b"));
}

TEST_F(ApiKeys, ComeFromTheEnvironmentIfNothingElseIsGiven) {
  const auto get = [](const char* name) { return std::string(name) == "TESSERA_API_KEY" ? "e" : nullptr; };
  EXPECT_THAT(*read_api_keys(kApiKeys, {}, "", get), ElementsAre("e"));
  EXPECT_THAT(*read_api_keys(kApiKeys, {"a"}, "", get), ElementsAre("a"));
  EXPECT_THAT(*read_api_keys(kApiKeys, {}, file("b"), get), ElementsAre("b"));
}

TEST_F(ApiKeys, AnEmptySourceIsAnError) {
  EXPECT_THAT(error({}, file("\n# none\n")), HasSubstr("has no key"));
  EXPECT_THAT(error({}, "/no/such/file"), AllOf(HasSubstr("--api-key-file: "), HasSubstr("/no/such/file")));
  EXPECT_THAT(error({}, "", [](const char*) { return ""; }),
              HasSubstr("TESSERA_API_KEY in the environment: the key is"));
}

TEST_F(ApiKeys, ErrorsDoNotShowThem) {
  EXPECT_THAT(error({"a secret"}, ""), AllOf(HasSubstr("--api-key: the key has a blank"), Not(HasSubstr("secret"))));
  EXPECT_THAT(error({}, file("ok\na secret\n")), AllOf(HasSubstr(":2: the key has"), Not(HasSubstr("secret"))));
}

TEST_F(ApiKeys, AreOverwrittenInTheArguments) {
  std::vector<std::string> words = {"serve", "--api-key", "secret", "--api-key=secret", "--api-key-file", "f", "m"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  hide_api_keys(arguments);
  EXPECT_THAT(words, ElementsAre("serve", "--api-key", "******", "--api-key=******", "--api-key-file", "f", "m"));
}

TEST_F(ApiKeys, AdminKeysHaveSourcesOfTheirOwn) {
  const auto get = [](const char* name) {
    return std::string_view(name) == "TESSERA_ADMIN_API_KEY" ? "root" : nullptr;
  };
  EXPECT_THAT(*read_api_keys(kAdminApiKeys, {}, "", get), ElementsAre("root"));
  EXPECT_THAT(*read_api_keys(kApiKeys, {}, "", get), IsEmpty());
  EXPECT_THAT(read_api_keys(kAdminApiKeys, {"a b"}, "", get).status().message(), HasSubstr("--admin-api-key: the key"));
  EXPECT_THAT(read_api_keys(kAdminApiKeys, {}, "/no/such/file", get).status().message(),
              HasSubstr("--admin-api-key-file: "));
  std::vector<std::string> words = {"--admin-api-key", "secret", "--ssl-keyfile-password=word", "--port", "1"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  hide_api_keys(arguments);
  EXPECT_THAT(words, ElementsAre("--admin-api-key", "******", "--ssl-keyfile-password=****", "--port", "1"));
}

TEST_F(ApiKeys, TheEffectiveConfigurationHidesThemAndStaysClosed) {
  const Result<CommandLine> line = parse_command_line(
      shared_built_ins(), {"serve", "--model-path", "m", "--api-key", "secret", "--api-key", "hidden"});
  ASSERT_TRUE(line.ok()) << line.status().message();
  EXPECT_THAT(std::get<ServeOptions>(line->command).server.api_keys, ElementsAre("secret", "hidden"));
  const std::string config = effective_config(line->values, nullptr).dump();
  EXPECT_THAT(config, AllOf(Not(HasSubstr("secret")), Not(HasSubstr("hidden"))));
  EXPECT_THAT(parse_command_line(shared_built_ins(), {"serve", "--config", file(config)}).status().message(),
              AllOf(HasSubstr("--api-key: "), HasSubstr("--api-key-file")));
  const Result<CommandLine> bench =
      parse_command_line(shared_built_ins(), {"bench", "serve", "--url", "http://x", "--api-key", "secret"});
  ASSERT_TRUE(bench.ok()) << bench.status().message();
  EXPECT_THAT(effective_config(bench->values, nullptr).dump(), Not(HasSubstr("secret")));
}

}  // namespace
}  // namespace tessera::cli
