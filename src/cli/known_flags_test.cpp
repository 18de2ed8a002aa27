// Catches: a flag of SGLang that is ignored, reported as mistyped, or refused without naming what is supported,
// although its feature is missing here; and a supported flag that is refused.
#include "tessera/options/known_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>

#include "tessera/cli/parse.h"

namespace tessera::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct MissingFlag {
  std::string flag;
  std::string value;  // "" for a switch
  std::string feature;
};

void PrintTo(const MissingFlag& missing, std::ostream* out) { *out << missing.flag; }

class MissingFeature : public ::testing::TestWithParam<MissingFlag> {};

std::string test_name(const ::testing::TestParamInfo<MissingFlag>& missing) {
  std::string name;
  for (const char c : missing.param.flag.substr(2)) name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

TEST_P(MissingFeature, IsNamedWithWhatIsSupported) {
  const auto& [flag, value, feature] = GetParam();
  std::vector<std::vector<std::string>> spellings = {{flag}};
  if (!value.empty()) spellings = {{flag, value}, {flag + "=" + value}};
  for (const std::vector<std::string>& spelling : spellings) {
    std::vector<std::string> words = {"serve", "--model-path", "m"};
    words.insert(words.end(), spelling.begin(), spelling.end());
    const Status status = parse_command_line(shared_built_ins(), words).status();
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
    EXPECT_THAT(status.message(), AllOf(StartsWith(flag + " is not supported yet: "), HasSubstr(feature),
                                        ::testing::ContainsRegex("; .*(support|server|process|batch|token)")));
  }
}

INSTANTIATE_TEST_SUITE_P(
    OfSglang, MissingFeature,
    ::testing::Values(MissingFlag{"--quantization-param-path", "p", "quantised at the start"},
                      MissingFlag{"--enable-dp-lm-head", "", "data-parallel attention"},
                      MissingFlag{"--n-gpu-layers", "99", "another device than the rest"},
                      MissingFlag{"--n-cpu-moe", "4", "another device than the rest"},
                      MissingFlag{"--mlock", "", "another way to read a file"},
                      MissingFlag{"--no-mmap", "", "another way to read a file"},
                      MissingFlag{"--rope-theta", "1e6", "--override-kv for the metadata of a GGUF file"},
                      MissingFlag{"--moe-runner-backend", "triton", "experts' kernels"},
                      MissingFlag{"--deepep-mode", "normal", "all-to-all (A2A)"},
                      MissingFlag{"--enable-eplb", "", "balancing of experts (EPLB)"},
                      MissingFlag{"--eplb-algorithm", "auto", "balancing of experts (EPLB)"},
                      MissingFlag{"--expert-distribution-recorder-mode", "stat", "distributed over experts"},
                      MissingFlag{"--enable-single-batch-overlap", "", "shared and routed experts"},
                      MissingFlag{"--tbo-token-distribution-threshold", "0.5", "two-batch overlap"},
                      MissingFlag{"--lora-backend", "triton", "adapters (LoRA)"},
                      MissingFlag{"--max-loaded-loras", "8", "adapters (LoRA)"},
                      MissingFlag{"--disaggregation-mode", "prefill", "PD disaggregation"},
                      MissingFlag{"--disaggregation-bootstrap-port", "8998", "PD disaggregation"},
                      MissingFlag{"--speculative-eagle-topk", "1", "speculative decoding"},
                      MissingFlag{"--speculative-draft-model-revision", "d", "speculative decoding"},
                      MissingFlag{"--dllm-algorithm", "LowConfidence", "diffusion language models"},
                      MissingFlag{"--mm-attention-backend", "fa3", "images"}),
    test_name);

TEST(UnknownArgument, AMistypedFlagIsNotAMissingFeature) {
  const std::vector<std::string> flags = {"--model-path", "--max-running-requests"};
  const Status status = unknown_argument("serve", "--modelpath", flags);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("did you mean --model-path"), Not(HasSubstr("not supported yet"))));
}

TEST(UnknownArgument, NoExistingFlagCountsAsMissing) {
  for (const char* command : {"serve", "generate", "chat", "score", "explain", "verify", "bench"}) {
    const Result<CommandLine> help = parse_command_line(shared_built_ins(), {command, "--help"});
    ASSERT_TRUE(help.ok());
    const std::string& text = std::get<ShowText>(help->command).text;
    for (std::size_t at = text.find("--"); at != std::string::npos; at = text.find("--", at + 2)) {
      const std::string flag =
          text.substr(at, text.find_first_not_of("-abcdefghijklmnopqrstuvwxyz0123456789", at) - at);
      EXPECT_NE(unknown_argument(command, flag, {}).code(), StatusCode::kUnimplemented) << flag;
    }
  }
}

}  // namespace
}  // namespace tessera::cli
