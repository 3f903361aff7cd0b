/* libnvrtc.so.13 in front of the real one, which EMULATOR_NVRTC names: a program that asks for
   machine code gets the PTX that it is made from, which the CUDA driver of this folder runs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))
typedef long (*function)(long, long, long, long, long, long);

enum { INTERNAL_ERROR = 11 };

static function real(const char *name) {
  static void *library;
  static int told;
  const char *path = getenv("EMULATOR_NVRTC");
  if (!library && path && *path) library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library && !told++)
    fputs("emulator: the program wants NVRTC, which is not installed: install nvidia-cuda-nvrtc\n",
          stderr);
  return library ? (function)dlsym(library, name) : 0;
}

/* Every function takes at most six words. */
#define ANSWERED(name, by)                                              \
  EXPORT long name(long a, long b, long c, long d, long e, long f) {    \
    function found = real(by);                                          \
    return found ? found(a, b, c, d, e, f) : INTERNAL_ERROR;            \
  }
#define FORWARDED(name) ANSWERED(name, #name)

ANSWERED(nvrtcGetCUBIN, "nvrtcGetPTX")
ANSWERED(nvrtcGetCUBINSize, "nvrtcGetPTXSize")
FORWARDED(nvrtcAddNameExpression)
FORWARDED(nvrtcCompileProgram)
FORWARDED(nvrtcCreateProgram)
FORWARDED(nvrtcDestroyProgram)
FORWARDED(nvrtcGetBundledHeadersInfo)
FORWARDED(nvrtcGetErrorString)
FORWARDED(nvrtcGetLTOIR)
FORWARDED(nvrtcGetLTOIRSize)
FORWARDED(nvrtcGetLoweredName)
FORWARDED(nvrtcGetNumSupportedArchs)
FORWARDED(nvrtcGetOptiXIR)
FORWARDED(nvrtcGetOptiXIRSize)
FORWARDED(nvrtcGetPCHCreateStatus)
FORWARDED(nvrtcGetPCHHeapSize)
FORWARDED(nvrtcGetPCHHeapSizeRequired)
FORWARDED(nvrtcGetPTX)
FORWARDED(nvrtcGetPTXSize)
FORWARDED(nvrtcGetProgramLog)
FORWARDED(nvrtcGetProgramLogSize)
FORWARDED(nvrtcGetSupportedArchs)
FORWARDED(nvrtcGetTileIR)
FORWARDED(nvrtcGetTileIRSize)
FORWARDED(nvrtcInstallBundledHeaders)
FORWARDED(nvrtcRemoveBundledHeaders)
FORWARDED(nvrtcSetFlowCallback)
FORWARDED(nvrtcSetPCHHeapSize)
FORWARDED(nvrtcVersion)
