// An MPI program for tests/launch/check_local.py: the argument after the command's name says how the ranks end.
#include <mpi.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

volatile std::sig_atomic_t stop_requested = 0;
void on_stop(int) {
  stop_requested = 1;
}

bool any_stop_requested() {
  int mine = stop_requested, any = 0;
  MPI_Allreduce(&mine, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  return any != 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string way = argc > 2 ? argv[2] : "";
  if (way == "late") usleep(1500 * 1000);  // catches USR1 only after a while
  if (way != "deaf") {
    for (const int signal : {SIGUSR1, SIGINT, SIGTERM, SIGHUP, SIGXCPU}) {
      if (std::signal(signal, on_stop) == SIG_IGN && signal != SIGUSR1) std::signal(signal, SIG_IGN);
    }
  }
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) {
    std::printf("running\n");
    std::fflush(stdout);
  }
  int code = 0;
  if (way == "save" || way == "late") {  // every rank saves for another time, a file in $SAVED, then leaves with 75
    while (!any_stop_requested()) {
      usleep(20 * 1000);
      std::printf("a step of rank %d\n", rank);
      std::fflush(stdout);
    }
    usleep(static_cast<useconds_t>(rank % 4) * 1500 * 1000);
    const std::string saved = std::string(std::getenv("SAVED")) + "/" + std::to_string(rank);
    if (std::FILE* file = std::fopen(saved.c_str(), "w")) std::fclose(file);
    code = 75;
  } else if (way == "code") {  // all leave with the code given
    code = std::atoi(argv[3]);
  } else if (way == "killed") {  // the last rank dies, its peers wait for it
    if (rank == 1) std::raise(SIGKILL);
    MPI_Barrier(MPI_COMM_WORLD);
  } else if (way == "abort") {
    if (rank == 1) MPI_Abort(MPI_COMM_WORLD, 72);
    MPI_Barrier(MPI_COMM_WORLD);
  } else if (way == "stubborn" || way == "deaf") {
    for (;;) pause();
  }
  std::fflush(stdout);
  MPI_Finalize();
  return code;
}
