// What launchers say by environment variables of the processes that they start: mpirun, srun and torchrun. They start
// the processes; the connections between those are ours, and no MPI library takes part.
#pragma once

#include <string>

#include "tessera/base/status.h"
#include "tessera/cli/environment.h"
#include "tessera/cli/options.h"

namespace tessera::cli {

// Takes nnodes, node_rank and dist_init_addr for a command with ranks on several nodes, where neither the command line
// nor its file has them and there are several ranks: each process is a node. Number and place come from the first of
//   WORLD_SIZE with RANK, NODE_RANK or GROUP_RANK     torchrun and what imitates it
//   OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_RANK        mpirun of Open MPI
//   PMI_SIZE, PMI_RANK                                MPICH, Intel MPI
//   SLURM_NTASKS, SLURM_PROCID                        srun
// and the address from MASTER_ADDR and MASTER_PORT, also for nodes that flags name. Returns a line that says what
// decided, "" where nothing was taken. kInvalidArgument names variable, value and what is accepted.
Result<std::string> take_launcher(const Environment& get, CommandLine& line);

}  // namespace tessera::cli
