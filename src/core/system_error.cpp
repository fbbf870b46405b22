// Errors of the system by number, and errors from other exceptions.
#include "core/system_error.h"

#include <cerrno>
#include <filesystem>
#include <new>

namespace shiftron {

const char* advice_on(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "; free space there, or choose another place";
    case EFBIG:
      return "; raise the file size limit (ulimit -f), or choose another place";
    case EACCES:
    case EPERM:
      return "; change its permissions, or choose another place";
    case EROFS:
      return "; choose another place";
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case EEXIST:
    case EISDIR:
      return "; check the path";
    case EMFILE:
      return "; raise the open file limit (ulimit -n)";
    case ENFILE:
      return "; this machine has too many open files: end some processes, or raise fs.file-max";
    case ENOMEM:
      return "; free memory";
    case EIO:
      return "; the disk or its connection has failed: check dmesg";
    case ESTALE:
      return "; the network file system has lost it: remount the file system";
    case ESHUTDOWN:
    case ENOTCONN:
    case ETIMEDOUT:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case EREMOTEIO:
    case ECOMM:
    case ECONNRESET:
      return "; the connection to the file system has failed: start again when it works";
    default:
      return "";
  }
}

bool is_path_error(int error) {
  return error == ENOENT || error == ENOTDIR || error == ELOOP || error == ENAMETOOLONG || error == EEXIST ||
         error == EISDIR || error == EACCES || error == EPERM || error == EROFS;
}

// Network file systems report many numbers, so everything else counts.
bool is_system_error(int error) {
  const bool is_denied = error == EACCES || error == EPERM,
             is_space_error = error == ENOSPC || error == EDQUOT || error == EFBIG;
  const bool is_no_file = error == ENXIO || error == EINVAL;  // a socket, a name that no file can have
  return is_denied || !(is_path_error(error) || is_space_error || is_no_file);
}

Error as_error(const std::exception& exception) {
  if (const auto* error = dynamic_cast<const Error*>(&exception)) return *error;
  if (dynamic_cast<const std::bad_alloc*>(&exception) != nullptr) {
    return Error("not enough memory; free some, or use smaller sizes", ExitCode::bad_input);
  }
  if (const auto* error = dynamic_cast<const std::filesystem::filesystem_error*>(&exception)) {
    const int number = error->code().value();
    const char* advice = advice_on(number);
    const std::string what = error->path1().string() + ": " + error->code().message();
    return Error(what + (*advice != 0 ? advice : "; check the path"),
                 is_path_error(number) ? ExitCode::bad_input : ExitCode::crash);
  }
  return Error(exception.what(), ExitCode::crash);
}

}  // namespace shiftron
