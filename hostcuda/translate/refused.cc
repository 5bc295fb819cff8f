#include "hostcuda/translate/refused.h"

#include <cctype>

namespace hostcuda::translate {
namespace {

struct Family {
  const char* prefix;  // of the names; what follows must not be a small letter where `capital` is set
  bool capital;
  const char* message;
};

constexpr const char* kTextures =
    "textures, surfaces and CUDA arrays are not there: keep the data in cudaMalloc'ed memory and read it "
    "through a pointer";
constexpr const char* kGraphics =
    "graphics interoperation is not there: copy the result to the host and draw it from there";
constexpr const char* kDriver = "the driver API is not there: use the runtime API (cudaMalloc, <<<>>>)";
constexpr const char* kRuntimeCompiler =
    "run-time compilation (NVRTC) is not there: compile the kernel with the program";
constexpr const char* kMatrixUnits =
    "tensor core fragments (wmma, mma) are not there: write the product with plain floats, or call cuBLAS";
constexpr const char* kProcesses =
    "memory shared between processes (IPC) is not there: use several devices of one process";

constexpr const char* kThrust =
    "Thrust, CUB and libcu++ are not there: write the loop as a kernel, use atomicAdd and "
    "cooperative_groups.h, or the "
    "standard library on the host";
constexpr const char* kRandom =
    "cuRAND is not there: generate the numbers on the host, or with a generator of your own";
constexpr const char* kLibraries =
    "not there: of NVIDIA's libraries there are cuBLAS and cuDNN alone, as far as Lockstep calls them";

struct Header {
  const char* part;  // of the path
  const char* message;
};

constexpr Header kHeaders[] = {
    {"thrust/", kThrust},          {"cub/", kThrust},          {"cuda/std/", kThrust},
    {"cuda/barrier", kThrust},     {"cuda/pipeline", kThrust}, {"cuda/atomic", kThrust},
    {"curand", kRandom},           {"cufft", kLibraries},      {"cusparse", kLibraries},
    {"cusolver", kLibraries},      {"nvml.h", kLibraries},     {"npp", kLibraries},
    {"nvrtc.h", kRuntimeCompiler}, {"mma.h", kMatrixUnits},    {"cuda_gl_interop.h", kGraphics},
    {"cudaEGL.h", kGraphics},      {"GL/", kGraphics},         {"EGL/", kGraphics},
    {"vulkan/", kGraphics},
};

constexpr Family kFamilies[] = {
    {"cudaTextureObject_t", false, kTextures},
    {"cudaCreateTextureObject", false, kTextures},
    {"cudaSurfaceObject_t", false, kTextures},
    {"cudaCreateSurfaceObject", false, kTextures},
    {"cudaArray_t", false, kTextures},
    {"cudaMallocArray", false, kTextures},
    {"cudaMalloc3DArray", false, kTextures},
    {"cudaBindTexture", false, kTextures},
    {"tex1D", false, kTextures},
    {"tex2D", false, kTextures},
    {"tex3D", false, kTextures},
    {"surf2D", false, kTextures},
    {"cudaGraphics", false, kGraphics},
    {"cudaGL", true, kGraphics},
    {"cudaIpc", true, kProcesses},
    {"cudaMemPoolExport", false, kProcesses},
    {"cudaMemPoolImport", false, kProcesses},
    {"CUdevice", false, kDriver},
    {"CUcontext", false, kDriver},
    {"CUmodule", false, kDriver},
    {"CUfunction", false, kDriver},
    {"cuInit", false, kDriver},
    {"cuModule", true, kDriver},
    {"cuLaunchKernel", false, kDriver},
    {"cuMem", true, kDriver},
    {"cuCtx", true, kDriver},
    {"cuDevice", true, kDriver},
    {"nvrtc", true, kRuntimeCompiler},
    {"cublasLtMat", false, "products of cuBLASLt are not there: use cublasGemmEx"},
    {"cufft", true, kLibraries},
    {"curand", false, kRandom},
    {"cusparse", false, kLibraries},
    {"cusolver", false, kLibraries},
    {"cudaGraphConditional", false,
     "conditional graph nodes are not there: decide on the host which graph to launch"},
};

std::string quote(std::string_view name) {
  std::string quoted = "`";
  quoted.append(name).append("`: ");
  return quoted;
}

}  // namespace

std::string why_refused(std::string_view name, std::string_view after) {
  const std::string quoted = quote(name);
  if (name == "asm" || name == "__asm__" || name == "__asm")
    return "`asm`: inline PTX is code for a GPU alone: write it in C++ (intrinsics like __shfl_sync are "
           "there)";
  if (name == "texture" && after == "<") return quoted + kTextures;
  if ((name == "thrust" || name == "cub") && after == "::") return quoted + kThrust;
  if (name == "wmma" && after == "::") return quoted + kMatrixUnits;
  for (const Family& family : kFamilies) {
    if (!name.starts_with(family.prefix)) continue;
    const std::string_view rest = name.substr(std::string_view(family.prefix).size());
    if (family.capital && (rest.empty() || std::islower(static_cast<unsigned char>(rest[0])) != 0)) continue;
    return quoted + family.message;
  }
  return {};
}

std::string why_header_refused(std::string_view path) {
  for (const Header& header : kHeaders) {
    const size_t at = path.rfind(header.part);
    if (at == std::string_view::npos || (at > 0 && path[at - 1] != '/')) continue;
    return quote(path.substr(at)) + header.message;
  }
  return {};
}

}  // namespace hostcuda::translate
