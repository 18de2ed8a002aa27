// Reads the environment variables by which mpirun, srun and torchrun describe the processes that they start. These
// launchers only start the processes. The processes connect by the program's own protocol, without an MPI library.
#pragma once

#include <string>

#include "tessera/base/status.h"
#include "tessera/cli/environment.h"
#include "tessera/cli/options.h"

namespace tessera::cli {

// Sets nnodes, node_rank and dist_init_addr of a command that can run on several nodes and has several ranks. Each
// process is a node. If neither the command line nor the configuration file has --nnodes or --node-rank, the number of
// nodes and the index of this node come from the first of these pairs that is set:
//   WORLD_SIZE with RANK, NODE_RANK or GROUP_RANK     torchrun and compatible launchers
//   OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_RANK        mpirun of Open MPI
//   PMI_SIZE, PMI_RANK                                MPICH, Intel MPI
//   SLURM_NTASKS, SLURM_PROCID                        srun
// If there are several nodes and no flag gives the address, the address comes from MASTER_ADDR and MASTER_PORT. This
// holds even if flags give the number of nodes and the index. Returns a line that says which variables were used, or ""
// if none were. Returns kInvalidArgument for a wrong value. The message names the variable, its value and what is
// accepted.
Result<std::string> take_launcher(const Environment& get, CommandLine& line);

}  // namespace tessera::cli
