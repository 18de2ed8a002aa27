// Catches: a launcher that is not recognised; a launcher that overrides a flag; a process with the wrong index;
// processes of one job that share a model although they should not.
#include "tessera/cli/serve/launch_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tessera/cli/parse.h"
#include "tessera/cli/serve/several_nodes.h"

namespace tessera::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Variables = std::map<std::string, std::string>;

struct Taken {
  CommandLine line;
  Result<std::string> said;
  const EngineOptions& engine() { return *engine_on_nodes(line.command); }
};

Taken take(const Variables& variables, std::vector<std::string> flags = {"--tp-size", "4"}) {
  flags.insert(flags.begin(), {"serve", "--model-path", "m"});
  Result<CommandLine> line = parse_command_line(shared_built_ins(), flags);
  EXPECT_TRUE(line.ok()) << line.status().to_string();
  Taken taken{.line = *std::move(line), .said = std::string()};
  taken.said = take_launcher(
      [&](const char* name) -> const char* {
        const auto it = variables.find(name);
        return it == variables.end() ? nullptr : it->second.c_str();
      },
      taken.line);
  return taken;
}

void expect_place(Taken taken, int nodes, int node, const std::string& address) {
  ASSERT_TRUE(taken.said.ok()) << taken.said.status().to_string();
  EXPECT_EQ(taken.engine().nnodes, nodes);
  EXPECT_EQ(taken.engine().node_rank, node);
  EXPECT_EQ(taken.engine().dist_init_addr, address);
}

const Variables kMaster = {{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}};

Variables with_master(Variables variables) {
  variables.insert(kMaster.begin(), kMaster.end());
  return variables;
}

TEST(Launcher, SetsNodesForRanksWithTheirOwnRequests) {
  const std::vector<std::string> flags{"--tp-size", "4", "--enable-dp-attention"};
  expect_place(take(with_master({{"WORLD_SIZE", "2"}, {"RANK", "1"}}), flags), 2, 1, "10.0.0.1:29500");
  std::vector<std::string> alone = flags;
  alone.insert(alone.end(), {"--nnodes", "1"});
  EXPECT_EQ(take(with_master({{"WORLD_SIZE", "2"}, {"RANK", "1"}}), alone).engine().nnodes, 1);
}

TEST(Launcher, ReadsEveryLauncher) {
  for (const auto& [size, rank] :
       std::vector<std::pair<std::string, std::string>>{{"WORLD_SIZE", "RANK"},
                                                        {"WORLD_SIZE", "NODE_RANK"},
                                                        {"WORLD_SIZE", "GROUP_RANK"},
                                                        {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                                                        {"PMI_SIZE", "PMI_RANK"},
                                                        {"SLURM_NTASKS", "SLURM_PROCID"}}) {
    Taken taken = take(with_master({{size, "4"}, {rank, "3"}}));
    EXPECT_THAT(*taken.said, HasSubstr("--nnodes 4 and --node-rank 3 by " + size + " and " + rank));
    EXPECT_THAT(*taken.said, HasSubstr("--dist-init-addr 10.0.0.1:29500 by MASTER_ADDR and MASTER_PORT"));
    expect_place(std::move(taken), 4, 3, "10.0.0.1:29500");
  }
}

TEST(Launcher, FlagsAloneAreEnough) {
  Taken taken = take({}, {"--tp-size", "4", "--nnodes", "2", "--node-rank", "1", "--dist-init-addr", "head:29500",
                          "--dist-timeout", "60"});
  EXPECT_THAT(*taken.said, IsEmpty());
  EXPECT_EQ(taken.engine().rank_timeout_s, 60);
  expect_place(std::move(taken), 2, 1, "head:29500");
}

TEST(Launcher, MpirunInsideSlurmCountsAsMpirun) {
  expect_place(take(with_master({{"SLURM_NTASKS", "8"},
                                 {"SLURM_PROCID", "0"},
                                 {"OMPI_COMM_WORLD_SIZE", "2"},
                                 {"OMPI_COMM_WORLD_RANK", "1"}})),
               2, 1, "10.0.0.1:29500");
}

TEST(Launcher, TorchrunListensAtItsOwnPort) {
  Taken taken = take(with_master({{"WORLD_SIZE", "2"}, {"RANK", "1"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}}));
  EXPECT_THAT(*taken.said, HasSubstr("torchrun itself listens"));
  expect_place(std::move(taken), 2, 1, "10.0.0.1:29501");
}

TEST(Launcher, AnIpv6AddressGetsBrackets) {
  expect_place(take({{"WORLD_SIZE", "2"}, {"RANK", "0"}, {"MASTER_ADDR", "fe80::1"}, {"MASTER_PORT", "80"}}), 2, 0,
               "[fe80::1]:80");
}

TEST(Launcher, FlagsOverrideTheLauncher) {
  const Variables other = with_master({{"WORLD_SIZE", "4"}, {"RANK", "3"}});
  expect_place(take(other, {"--tp-size", "4", "--nnodes", "2", "--node-rank", "1"}), 2, 1, "10.0.0.1:29500");
  expect_place(take(other, {"--tp-size", "4", "--nnodes", "1"}), 1, 0, "");
  expect_place(take(other, {"--tp-size", "4", "--nnodes", "2", "--dist-init-addr", "h:1"}), 2, 0, "h:1");
  expect_place(take(other, {"--tp-size", "4", "--dist-init-addr", "h:1"}), 4, 3, "h:1");
}

TEST(Launcher, IsIgnoredIfNoRanksAreShared) {
  const Variables job = with_master({{"WORLD_SIZE", "4"}, {"RANK", "3"}});
  Taken one_rank = take(job, {});
  EXPECT_THAT(*one_rank.said, IsEmpty());
  expect_place(std::move(one_rank), 1, 0, "");
  expect_place(take({}), 1, 0, "");
  expect_place(take({{"SLURM_NTASKS", "1"}, {"SLURM_PROCID", "0"}}), 1, 0, "");
  expect_place(take({{"SLURM_NTASKS", "4"}}), 1, 0, "");
  Taken replicas = take(job, {"--tp-size", "4", "--dp-size", "2"});
  EXPECT_THAT(*replicas.said, IsEmpty());
}

TEST(Launcher, NamesAValueThatIsNoNumber) {
  EXPECT_THAT(take({{"WORLD_SIZE", "two"}, {"RANK", "0"}}).said.status().message(),
              HasSubstr("WORLD_SIZE in the environment"));
  EXPECT_THAT(take({{"PMI_SIZE", "2"}, {"PMI_RANK", "2"}}).said.status().message(),
              HasSubstr("PMI_RANK in the environment"));
  EXPECT_THAT(
      take({{"WORLD_SIZE", "2"}, {"RANK", "0"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "x"}}).said.status().message(),
      HasSubstr("MASTER_PORT in the environment"));
}

TEST(SeveralNodes, RefusesCommandsThatStartOneEngineAlone) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"verify", "--modes", "--model-path", "m"},
                                             {"bench", "startup", "--model-path", "m"},
                                             {"serve", "--dp-size", "2", "--model-path", "m"}}) {
    std::vector<std::string> flags = words;
    flags.insert(flags.end(), {"--nnodes", "2", "--tp-size", "2"});
    Result<CommandLine> line = parse_command_line(shared_built_ins(), flags);
    ASSERT_TRUE(line.ok()) << line.status().to_string();
    const Status status = check_nodes_of(line->command);
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << words[0];
    EXPECT_THAT(status.message(), HasSubstr("--nnodes: 2 is accepted by generate"));
  }
}

}  // namespace
}  // namespace tessera::cli
