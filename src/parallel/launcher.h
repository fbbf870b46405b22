// What the environment says of who launched this process, before MPI reads it.
#pragma once

#include <string>

namespace shiftron {

// Whether mpirun or a launcher with PMIx started this process. Ask before MPI begins: it sets such variables itself.
bool is_launched();

// Whether no rank can be on another host, by what mpirun tells; a process that nobody launched is the only one.
bool is_on_one_host();

// By one variable Open MPI takes a program for one of srun's ranks: where srun speaks no PMIx it ends it, and where it
// does, the second one that is started in one shell. A single task needs none of this: hidden while this lives.
class WithoutStep {
 public:
  WithoutStep();
  ~WithoutStep();
  WithoutStep(const WithoutStep&) = delete;
  WithoutStep& operator=(const WithoutStep&) = delete;

 private:
  std::string step_;
};

}  // namespace shiftron
