// Catches: a name from SGLang that cuts at a wrong operator; a name that is ignored; and a list of default split ops
// that lacks an operator which must run outside graphs.
#include "tessera/piecewise/split_ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/ops/built_in_ops.h"
#include "tessera/piecewise/stitching_test_util.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Status error(const std::string& name) { return resolve_split_ops(testing::word_table(), std::vector{name}).status(); }

TEST(SplitOps, DefaultsAreWhatOperatorsDeclare) {
  EXPECT_THAT(default_split_ops(testing::word_table()), ElementsAre("attention", "host_read"));
  EXPECT_THAT(default_split_ops(built_in_ops()),
              ElementsAre("all_reduce", "attention", "gated_delta_net", "latent_attention"));
}

TEST(SplitOps, TakesOperatorsAndTheSpellingsOfSglang) {
  const std::vector<std::string> names = {"sglang.unified_attention_with_output", "linear", "sglang.inplace_all_reduce",
                                          "sglang.moe_forward_piecewise_cuda_graph_impl", "sglang.gdn_with_output"};
  EXPECT_THAT(*resolve_split_ops(built_in_ops(), names),
              ElementsAre("attention", "latent_attention", "linear", "all_reduce", "moe_experts", "gated_delta_net"));
  EXPECT_THAT(*resolve_split_ops(built_in_ops(), {}), IsEmpty());
}

TEST(SplitOps, AnSglangSpellingWithoutOperatorIsUnimplemented) {
  const std::string name = "sglang.gdn_with_output";
  const Status status = error(name);  // the error for a table without this operator
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), AllOf(HasSubstr(name), HasSubstr("does not exist yet")));
}

TEST(SplitOps, AnUnknownNameIsRefusedWithTheRegisteredOnes) {
  EXPECT_EQ(error("atention").code(), StatusCode::kNotFound);
  EXPECT_THAT(error("atention").message(),
              AllOf(HasSubstr("split op"), HasSubstr("'atention'"), HasSubstr("attention")));
  // The error lists all operators, even if none has a similar name.
  for (const char* registered : {"attention", "host_read", "moe"})
    EXPECT_THAT(error("zzzzzz").message(), HasSubstr(registered));
  EXPECT_FALSE(error("").ok());
}

}  // namespace
}  // namespace tessera
