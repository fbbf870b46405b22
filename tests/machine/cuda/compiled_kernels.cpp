// A kernel's name is found in this program's own symbols; nvcc's name differs only in the names of unnamed namespaces.
#include "cuda/compiled_kernels.h"

#include <cxxabi.h>
#include <elf.h>
#include <link.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>

#include "core/check.h"
#include "cuda/ptx.h"

namespace shiftron::machine {
namespace {

// "embedding_forward_kernel<8, __nv_bfloat16>(int const*, …)", without unnamed namespaces.
std::string plain_name(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> plain(abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status),
                                                     std::free);
  std::string name = status == 0 ? plain.get() : mangled;
  const std::string unnamed = "(anonymous namespace)::";
  for (size_t at = name.find(unnamed); at != std::string::npos; at = name.find(unnamed)) name.erase(at, unnamed.size());
  return name;
}

std::string read_whole(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  CHECK(file.good(), path.string(), " cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

uintptr_t load_address() {
  uintptr_t address = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* found) {
        *static_cast<uintptr_t*>(found) = info->dlpi_addr;
        return 1;  // the program itself comes first
      },
      &address);
  return address;
}

// Of this program's functions, by where they begin.
std::map<uintptr_t, std::string> functions_of_program() {
  const std::string image = read_whole("/proc/self/exe");
  const auto at = [&]<typename T>(size_t offset, T* to) {
    CHECK(offset + sizeof(T) <= image.size(), "a table outside of the program");
    std::memcpy(to, image.data() + offset, sizeof(T));
  };
  Elf64_Ehdr header;
  at(0, &header);
  std::map<uintptr_t, std::string> found;
  const uintptr_t base = load_address();
  for (size_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section, names;
    at(header.e_shoff + i * sizeof(section), &section);
    if (section.sh_type != SHT_SYMTAB) continue;
    at(header.e_shoff + section.sh_link * sizeof(names), &names);
    for (size_t j = 0; j < section.sh_size / sizeof(Elf64_Sym); ++j) {
      Elf64_Sym symbol;
      at(section.sh_offset + j * sizeof(symbol), &symbol);
      if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC) found[base + symbol.st_value] = image.data() + names.sh_offset + symbol.st_name;
    }
  }
  CHECK(!found.empty(), "the program has no symbols; it was stripped");
  return found;
}

struct Compiled {
  std::vector<ptx::Module> modules;
  std::map<std::string, const ptx::Function*> kernels;
  std::map<uintptr_t, std::string> names;
};

Compiled read_folder(const std::string& folder) {
  Compiled compiled;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".ptx") continue;
    compiled.modules.push_back(ptx::read(read_whole(entry.path()), entry.path().filename()));
    for (const auto& [name, function] : compiled.modules.back().functions) {
      if (!function->entry) continue;
      const bool first = compiled.kernels.emplace(plain_name(name), function.get()).second;
      CHECK(first, folder, ": two kernels are named ", plain_name(name));
    }
  }
  CHECK(!compiled.kernels.empty(), folder, " (SHIFTRON_PTX) holds no *.ptx");
  compiled.names = functions_of_program();
  return compiled;
}

const char* folder_of_environment() {
  static const char* const folder = std::getenv("SHIFTRON_PTX");
  return folder;
}

}  // namespace

bool executes_compiled_kernels() {
  return folder_of_environment() != nullptr;
}

std::function<void()> compiled_body(const void* kernel, std::vector<std::vector<std::byte>> parameters, int64_t shared) {
  const char* const folder = folder_of_environment();
  static const Compiled compiled = read_folder(folder);
  const auto name = compiled.names.find(reinterpret_cast<uintptr_t>(kernel));
  CHECK(name != compiled.names.end(), "a kernel without a name");
  const auto found = compiled.kernels.find(plain_name(name->second));
  CHECK(found != compiled.kernels.end(), folder, " (SHIFTRON_PTX) has no ", plain_name(name->second));
  return [function = found->second, parameters = std::move(parameters), shared] {
    ptx::execute(*function, parameters, shared);
  };
}

}  // namespace shiftron::machine
