// Catches: a variable that is ignored or read in the wrong order; an empty variable that counts as set; and a "~" that
// is not replaced.
#include "tessera/options/cache_dir.h"

#include <gtest/gtest.h>

#include <map>

namespace tessera {
namespace {

std::string folder(const std::map<std::string, std::string>& environment) {
  return cache_dir_from([&](const char* name) -> const char* {
    const auto it = environment.find(name);
    return it == environment.end() ? nullptr : it->second.c_str();
  });
}

TEST(CacheDir, ComesFromTheEnvironment) {
  std::map<std::string, std::string> environment = {
      {"TESSERA_CACHE_DIR", "/t"}, {"SGLANG_CACHE_DIR", "/s"}, {"XDG_CACHE_HOME", "/x"}, {"HOME", "/h"}};
  EXPECT_EQ(folder(environment), "/t");
  environment["TESSERA_CACHE_DIR"] = "~/mine";
  EXPECT_EQ(folder(environment), "/h/mine");
  environment["TESSERA_CACHE_DIR"] = "";
  EXPECT_EQ(folder(environment), "/s");
  environment.erase("SGLANG_CACHE_DIR");
  EXPECT_EQ(folder(environment), "/x/tessera");
  environment.erase("XDG_CACHE_HOME");
  EXPECT_EQ(folder(environment), "/h/.cache/tessera");
  EXPECT_EQ(folder({}), "");
}

}  // namespace
}  // namespace tessera
