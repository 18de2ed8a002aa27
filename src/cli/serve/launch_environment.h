// Reads the environment variables by which mpirun, srun and torchrun describe the processes that they start. These
// launchers only start the processes. The processes connect by the program's own protocol, without an MPI library.
#pragma once

#include <string>

#include "tessera/base/status.h"
#include "tessera/cli/environment.h"
#include "tessera/cli/options.h"

namespace tessera::cli {

// Sets nnodes, node_rank and dist_init_addr for a command with ranks on several nodes. Does so only if there are
// several ranks and neither the command line nor the configuration file has these flags. Each process is a node. The
// number and index of the node come from the first of these pairs that is set:
//   WORLD_SIZE with RANK, NODE_RANK or GROUP_RANK     torchrun and compatible launchers
//   OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_RANK        mpirun of Open MPI
//   PMI_SIZE, PMI_RANK                                MPICH, Intel MPI
//   SLURM_NTASKS, SLURM_PROCID                        srun
// The address comes from MASTER_ADDR and MASTER_PORT, even if flags give number and index. Returns a line that says
// which variables were used; "" if none were. Returns kInvalidArgument for a wrong value; the message names the
// variable, its value and what is accepted.
Result<std::string> take_launcher(const Environment& get, CommandLine& line);

}  // namespace tessera::cli
