// Catches: an error that names an option in a form that the command line does not accept; and ordinary words or options
// of another program that are mistaken for options.
#include "tessera/options/option_words.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(OptionWords, OptionsBecomeTheCommandsFlags) {
  std::vector<FlagValue> flags;
  for (const char* name : {"--mem-fraction-static", "--dtype", "--page-size", "--disable-cuda-graph"})
    flags.emplace_back().flag = name;
  const std::pair<const char*, const char*> cases[] = {
      {"lower mem_fraction_static (0.8, 0.7)", "lower --mem-fraction-static (0.8, 0.7)"},
      {"page_size: 0 is not accepted", "--page-size: 0 is not accepted"},
      {"dtype: \"x\" is none of", "--dtype: \"x\" is none of"},
      {"another dtype: use it", "another dtype: use it"},
      {"raise --mem-fraction-static", "raise --mem-fraction-static"},
      {"max_new_tokens is no flag here", "max_new_tokens is no flag here"},
      {"no_page_size, page_sizes", "no_page_size, page_sizes"},
      {"mem_fraction_static", "--mem-fraction-static"},
      {"lower page_size.", "lower --page-size."},
      {"/models/page_size/x, page_size/x: page_size.json and .page_size",
       "/models/page_size/x, page_size/x: page_size.json and .page_size"},
      {"graphs are off: Disable piecewise CUDA graph because disable_cuda_graph is set; page_size",
       "graphs are off: Disable piecewise CUDA graph because disable_cuda_graph is set; --page-size"},
      {"", ""}};
  for (const auto& [message, want] : cases) EXPECT_EQ(with_flags(message, flags), want);
}

TEST(OptionWords, FlagsBecomeOptionNames) {
  const std::pair<const char*, const char*> cases[] = {
      {"--enable-cudagraph-gc has no effect", "enable_cudagraph_gc has no effect"},
      {"(--tool-call-parser generic)", "(tool_call_parser generic)"},
      {"no effect with --tp-size 1: see --help", "no effect with tp_size 1: see --help"},
      {"a -- b, a--b, ---x, --8, --", "a -- b, a--b, ---x, --8, --"},
      {"lower mem_fraction_static", "lower mem_fraction_static"},
      {"", ""}};
  for (const auto& [message, want] : cases) EXPECT_EQ(with_option_names(message), want);
}

}  // namespace
}  // namespace tessera
