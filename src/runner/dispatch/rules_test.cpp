// Tests the table of rules that turn piecewise graphs off. Catches: a rule that does not apply when it should, or that
// applies to the case of another rule; a rule's message that differs from the documented one; an enforce option that
// overrides not only automatic rules but also the user's other options; and a graph mode that switches the wrong kind
// of graphs on or off (decode or prefill).
#include "tessera/runner/dispatch/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kDisabled = "Disable piecewise CUDA graph because disable_cuda_graph is set";
constexpr const char* kPiecewiseDisabled = "Disable piecewise CUDA graph because disable_piecewise_cuda_graph is set";
constexpr const char* kModeOff = "Disable piecewise CUDA graph because cuda_graph_mode is off";
constexpr const char* kArchitecture =
    "Disable piecewise CUDA graph because piecewise_cuda_graph does not support the model architecture: "
    "DeepseekV32ForCausalLM";
constexpr const char* kNoGqa = "Disable piecewise CUDA graph because some layers do not apply Standard GQA";
constexpr const char* kNoLayout =
    "Disable piecewise CUDA graph because the operators do not declare the cache layout of some layers: 1, 3";

TEST(Rules, EveryRuleFiresAloneWithItsMessage) {
  const struct {
    const char* rule;
    RuleInputs inputs;
    const char* message;
  } cases[] = {{"disable_cuda_graph", {.disable_cuda_graph = true}, kDisabled},
               {"disable_piecewise_cuda_graph", {.disable_piecewise_cuda_graph = true}, kPiecewiseDisabled},
               {"cuda_graph_mode", {.mode = GraphMode::kOff}, kModeOff},
               {"architecture", {.architecture = "DeepseekV32ForCausalLM"}, kArchitecture},
               {"standard_gqa", {.standard_gqa = false}, kNoGqa},
               {"cache_layout", {.undeclared_layers = {1, 3}}, kNoLayout}};
  std::set<std::string_view> covered;
  for (const auto& c : cases) {
    const GraphSwitches switches = apply_rules(c.inputs);
    EXPECT_FALSE(switches.prefill) << c.rule;
    EXPECT_THAT(switches.messages, ElementsAre(c.message)) << c.rule;
    for (const Rule& rule : piecewise_rules()) EXPECT_EQ(rule.applies(c.inputs), rule.name == c.rule) << rule.name;
    covered.insert(c.rule);
  }
  for (const Rule& rule : piecewise_rules()) EXPECT_EQ(covered.count(rule.name), 1u) << rule.name << " has no case";
  EXPECT_THAT(apply_rules({}).messages, IsEmpty());
  EXPECT_THAT(apply_rules({.architecture = "DeepseekV3ForCausalLM"}).messages, IsEmpty());
}

TEST(Rules, MessagesComeInTheTablesOrder) {
  const RuleInputs all{.mode = GraphMode::kOff,
                       .disable_cuda_graph = true,
                       .disable_piecewise_cuda_graph = true,
                       .architecture = "DeepseekV32ForCausalLM",
                       .standard_gqa = false,
                       .undeclared_layers = {1, 3}};
  EXPECT_THAT(apply_rules(all).messages,
              ElementsAre(kDisabled, kPiecewiseDisabled, kModeOff, kArchitecture, kNoGqa, kNoLayout));
}

TEST(Rules, EnforceSkipsAutomaticRulesOnly) {
  const auto messages = [](RuleInputs inputs) {
    inputs.enforce_piecewise_cuda_graph = true;
    return apply_rules(inputs).messages;
  };
  EXPECT_THAT(messages({.architecture = "DeepseekV32ForCausalLM", .standard_gqa = false}), IsEmpty());
  EXPECT_THAT(messages({.disable_cuda_graph = true}), ElementsAre(kDisabled));
  EXPECT_THAT(messages({.disable_piecewise_cuda_graph = true, .standard_gqa = false}), ElementsAre(kPiecewiseDisabled));
  EXPECT_THAT(messages({.mode = GraphMode::kOff}), ElementsAre(kModeOff));
  EXPECT_TRUE(apply_rules({.enforce_piecewise_cuda_graph = true, .standard_gqa = false}).prefill);
}

// Each case says whether decode graphs and prefill graphs are on, and whether a prefill is one graph.
TEST(Rules, SwitchesFollowTheMatrix) {
  using enum GraphMode;
  const struct {
    const char* what;
    RuleInputs inputs;
    bool decode, prefill, whole;
  } cases[] = {
      {"default", {}, true, true, false},
      {"disable_cuda_graph", {.disable_cuda_graph = true}, false, false, false},
      {"disable_piecewise_cuda_graph", {.disable_piecewise_cuda_graph = true}, true, false, false},
      {"listed architecture", {.architecture = "DeepseekV32ForCausalLM"}, true, false, false},
      {"no standard GQA", {.standard_gqa = false}, true, false, false},
      {"mode off", {.mode = kOff}, false, false, false},
      {"mode piecewise", {.mode = kPiecewise}, false, true, false},
      {"mode full", {.mode = kFull}, true, true, true},
      {"mode full_and_piecewise", {.mode = kFullAndPiecewise}, true, true, false},
      {"full, piecewise disabled", {.mode = kFull, .disable_piecewise_cuda_graph = true}, true, false, true},
      {"piecewise, piecewise disabled",
       {.mode = kPiecewise, .disable_piecewise_cuda_graph = true},
       false,
       false,
       false},
      {"no tokens", {.generates = false}, false, true, false},
      {"no tokens, full", {.mode = kFull, .generates = false}, false, true, true},
      {"full, all disabled", {.mode = kFull, .disable_cuda_graph = true}, false, false, true},
  };
  for (const auto& c : cases) {
    const GraphSwitches switches = apply_rules(c.inputs);
    EXPECT_EQ(switches.decode, c.decode) << c.what;
    EXPECT_EQ(switches.prefill, c.prefill) << c.what;
    EXPECT_EQ(switches.prefill_whole, c.whole) << c.what;
  }
}

TEST(GraphModes, PrintAndParseAlike) {
  for (const GraphMode mode : {GraphMode::kOff, GraphMode::kPiecewise, GraphMode::kFull, GraphMode::kFullAndPiecewise})
    EXPECT_EQ(*parse_graph_mode(graph_mode_name(mode)), mode);
  for (const char* wrong : {"", "Full", "full ", "piecewise,full", "on"}) {
    const Result<GraphMode> mode = parse_graph_mode(wrong);
    EXPECT_EQ(mode.status().code(), StatusCode::kInvalidArgument) << wrong;
    EXPECT_THAT(mode.status().message(), AllOf(HasSubstr('"' + std::string(wrong) + '"'),
                                               HasSubstr("off, piecewise, full, full_and_piecewise")));
  }
}

}  // namespace
}  // namespace tessera
