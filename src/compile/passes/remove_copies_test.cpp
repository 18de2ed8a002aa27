// Catches: a copy that is removed although a write, directly or through a view, makes the copy differ from its
// original; an output that loses its name or shares memory with another output; and unneeded copies that stay.
#include "tessera/compile/passes/remove_copies.h"

#include "tessera/compile/passes/pass_test_util.h"

namespace tessera {
namespace {

using testing::after;
using testing::graph;
using testing::kUnchanged;

TEST(RemoveCopies, TheExampleOfTheHeader) {
  EXPECT_EQ(after(remove_copies, R"(
              %a = silu(%x)
              %c = copy(%a)
              all_reduce(mut %c)
              %f = cast(%c) {dtype = "f32"}
              %y = linear(%f, %m)
              return %y)"),
            graph("%a = silu(%x) all_reduce(mut %a) %y = linear(%a, %m) return %y"));
}

TEST(RemoveCopies, RemovesEveryOperatorThatChangesNothing) {
  for (const char* identity :
       {"copy(%x)", "cast(%x)", "cast(%x) {dtype = \"f32\"}", "scale(%x) {factor = 1.0}",
        "scale(%x) {factor = 1.00000000001}", "split(%x) {sizes = [8]}", "reshape(%x) {shape = \"T, 8\"}"})
    EXPECT_EQ(after(remove_copies, "%c = " + std::string(identity) + " %y = add(%c, %x) return %y"),
              graph("%y = add(%x, %x) return %y"))
        << identity;
}

TEST(RemoveCopies, KeepsOperatorsThatChangeSomething) {
  for (const char* change :
       {"cast(%x) {dtype = \"bf16\"}", "scale(%x) {factor = -1.0}", "scale(%x) {factor = 1.000001}",
        "reshape(%x) {shape = \"2*T, 4\"}", "empty_like(%x)", "all_gather(%x) {ranks = 1}"})
    EXPECT_EQ(after(remove_copies, "%c = " + std::string(change) + " %y = silu(%x) return %y"), kUnchanged) << change;
  EXPECT_EQ(after(remove_copies, "%a, %b = split(%x) {sizes = [4, 4]} return %a"), kUnchanged);
}

TEST(RemoveCopies, RemovesAChain) {
  EXPECT_EQ(after(remove_copies, "%a = copy(%x) %b = copy(%a) %c = scale(%b) {factor = 1.0} %y = silu(%c) return %y"),
            graph("%y = silu(%x) return %y"));
}

TEST(RemoveCopies, KeepsAWrittenCopyWhoseOriginalIsReadLater) {
  EXPECT_EQ(after(remove_copies, "%a = silu(%x) %c = copy(%a) all_reduce(mut %c) %y = add(%c, %a) return %y"),
            kUnchanged);
  EXPECT_EQ(after(remove_copies, R"(%a = silu(%x) %c = copy(%a) %v = reshape(%c) {shape = "8*T"} all_reduce(mut %v)
                                    %y = add(%c, %a) return %y)"),
            kUnchanged);
  EXPECT_EQ(after(remove_copies, "%a = silu(%x) %c = copy(%a) all_reduce(mut %c) return %c, %a"), kUnchanged);
}

TEST(RemoveCopies, KeepsAWrittenCopyOfSomebodyElsesValue) {
  EXPECT_EQ(after(remove_copies, "%c = copy(%x) all_reduce(mut %c) %y = silu(%c) return %y"), kUnchanged);
  EXPECT_EQ(after(remove_copies, "%c = copy(%s) all_reduce(mut %c) %y = silu(%c) return %y"), kUnchanged);
  EXPECT_EQ(after(remove_copies, R"(%v = reshape(%s) {shape = "8*T"} %c = copy(%v) all_reduce(mut %c)
                                    %y = silu(%c) return %y)"),
            kUnchanged);
}

TEST(RemoveCopies, KeepsACopyIfTheOriginalIsWritten) {
  EXPECT_EQ(after(remove_copies, "%a = silu(%x) %c = copy(%a) all_reduce(mut %a) %y = add(%a, %c) return %y"),
            kUnchanged);
  EXPECT_EQ(after(remove_copies, "%c = copy(%s) all_reduce(mut %s) %y = silu(%c) return %y"), kUnchanged);
  EXPECT_EQ(after(remove_copies, "%a = silu(%x) %c = copy(%a) %y = silu(%c) all_reduce(mut %a) return %y, %a"),
            graph("%a = silu(%x) %y = silu(%a) all_reduce(mut %a) return %y, %a"))
      << "the copy was done with";
}

TEST(RemoveCopies, AnOutputKeepsItsNameAndItsMemory) {
  EXPECT_EQ(after(remove_copies, "%a = silu(%x) %hidden = copy(%a) return %hidden"),
            graph("%hidden = silu(%x) return %hidden"));
  for (const char* of_others :
       {"%y = copy(%x) return %y", "%y = copy(%s) return %y", "%a = silu(%x) %y = copy(%a) return %a, %y",
        "%a = silu(%x) %y = reshape(%a) {shape = \"T, 8\"} return %a, %y",
        "%a = copy(%s) %y = reshape(%a) {shape = \"8*T\"} return %y", "%y = reshape(%x) {shape = \"T, 8\"} return %y"})
    EXPECT_EQ(after(remove_copies, of_others), kUnchanged) << of_others;
  EXPECT_EQ(after(remove_copies, "%a = silu(%x) %y = copy(%a) all_reduce(mut %a) return %y"), kUnchanged)
      << "an output is read after all";
}

}  // namespace
}  // namespace tessera
