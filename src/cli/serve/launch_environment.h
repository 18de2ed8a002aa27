// Reads the environment variables by which the launchers mpirun, srun and torchrun describe the processes that they
// start. Launchers only start processes: these connect by our own protocol, and no MPI library is used.
#pragma once

#include <string>

#include "tessera/base/status.h"
#include "tessera/cli/environment.h"
#include "tessera/cli/options.h"

namespace tessera::cli {

// Sets nnodes, node_rank and dist_init_addr for a command with ranks on several nodes, if neither the command line nor
// its file has them and there are several ranks. Each process is a node. Number and index come from the first of these
// pairs that is set:
//   WORLD_SIZE with RANK, NODE_RANK or GROUP_RANK     torchrun and compatible launchers
//   OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_RANK        mpirun of Open MPI
//   PMI_SIZE, PMI_RANK                                MPICH, Intel MPI
//   SLURM_NTASKS, SLURM_PROCID                        srun
// The address comes from MASTER_ADDR and MASTER_PORT, even if flags give number and index. Returns a line that says
// what decided; "" if nothing was set. kInvalidArgument names variable, value and what is accepted.
Result<std::string> take_launcher(const Environment& get, CommandLine& line);

}  // namespace tessera::cli
