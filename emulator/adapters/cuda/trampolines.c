/* What a library of trampolines has besides them: it finds the Python of the process, or starts one,
   and lets it set `target`, the one function that all trampolines call. LIBRARY names the library.
   Python is used through its symbols alone, so that one build serves every version. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEINITIALIZED 4
#define SYSTEM_DRIVER_MISMATCH 803

typedef int64_t (*Target)(int, const void *);
typedef struct { uint32_t x, y, z; } Dim3;
typedef struct { uint64_t word[1]; } Words1;
typedef struct { uint64_t word[3]; } Words3;
typedef struct { uint64_t word[4]; } Words4;
typedef struct { uint64_t word[8]; } Words8;

/* where calls go; Python sets it at the first call and clears it when it ends */
static Target volatile target;
static volatile int ended;
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;

__attribute__((visibility("hidden"))) void end_calls(void) { ended = 1; target = 0; }

/* functions of the program's own that are called when a call has left Python: they may want to run
   Python themselves, and must not find it in the middle of a call */
typedef struct Later { void (*function)(void *); void *data; struct Later *next; } Later;
static __thread Later *later;

__attribute__((visibility("hidden"))) void call_later(void (*function)(void *), void *data) {
  Later *made = malloc(sizeof *made);
  if (!made) return;
  *made = (Later){function, data, later};
  later = made;
}

static void *python(const char *name) { return dlsym(RTLD_DEFAULT, name); }

static int complain(const char *what, const char *more) {
  fprintf(stderr, "emulator: " LIBRARY ": %s%s\n", what, more ? more : "");
  return SYSTEM_DRIVER_MISMATCH;
}

/* Starts a Python in a program that has none. */
static int embed(void) {
  const char *path = getenv("EMULATOR_CUDA_LIBPYTHON"), *home = getenv("EMULATOR_CUDA_PYTHONHOME");
  if (!path || !home)
    return complain("run this program with `python -m emulator exec --gpu NAME -- PROGRAM`", 0);
  if (!*path)
    return complain("this Python was built without a shared library (libpython), "
                    "which programs that are not Python need", 0);
  if (!dlopen(path, RTLD_NOW | RTLD_GLOBAL)) return complain("cannot load Python: ", dlerror());
  const char *before = getenv("PYTHONHOME");
  char *kept = before ? strdup(before) : 0;
  setenv("PYTHONHOME", home, 1);
  ((void (*)(int))python("Py_InitializeEx"))(0);
  if (kept) setenv("PYTHONHOME", kept, 1); else unsetenv("PYTHONHOME");
  free(kept);
  ((void *(*)(void))python("PyEval_SaveThread"))();
  return 0;
}

static int start(void) {
  int failed = 0, present;
  pthread_mutex_lock(&starting);
  int (*initialized)(void) = (int (*)(void))python("Py_IsInitialized");
  present = initialized != 0;
  if (!present) failed = embed();
  else if (!initialized()) failed = DEINITIALIZED;
  pthread_mutex_unlock(&starting);
  if (failed) return failed;
  char text[1024];
  snprintf(text, sizeof text,
           "def _():\n"
           "    import os, sys\n"
           "    home = os.environ.get('EMULATOR_CUDA_HOME', '')\n"
           "    sys.path.insert(0, home)\n"
           "    here = '%%d.%%d' %% sys.version_info[:2]\n"
           "    if os.environ.get('EMULATOR_CUDA_VERSION') == here:\n"
           "        more = os.environ.get('EMULATOR_CUDA_PATH', '').split(os.pathsep)\n"
           "        sys.path += [p for p in more if p and p not in sys.path]\n"
           "    try:\n"
           "        import dtypes\n"
           "        from emulator.adapters.cuda.process import attach\n"
           "    finally:\n"
           "        sys.path.remove(home)\n"
           "    attach('" LIBRARY "', %llu, %llu, %llu)\n"
           "_()\ndel _\n",
           (unsigned long long)(uintptr_t)&target, (unsigned long long)(uintptr_t)&end_calls,
           (unsigned long long)(uintptr_t)&call_later);
  int state = ((int (*)(void))python("PyGILState_Ensure"))();
  if (!target && !ended && ((int (*)(const char *))python("PyRun_SimpleString"))(text))
    failed = complain("the emulator could not be imported", 0);
  ((void (*)(int))python("PyGILState_Release"))(state);
  return failed;
}

/* Gives a thread of the program's own a state in Python that lasts from call to call, since what
   belongs to a thread (its errors, its context) is kept there. */
static void stay(void) {
  static __thread int known;
  if (known) return;
  known = 1;
  if (((void *(*)(void))python("PyGILState_GetThisThreadState"))()) return;
  ((int (*)(void))python("PyGILState_Ensure"))();
  ((void *(*)(void))python("PyEval_SaveThread"))();
}

/* Calls Python with no exception under way, as there may be one where the program is Python. */
static int64_t enter(Target now, int index, const void *words) {
  static int (*ensure)(void);
  static void (*release)(int), (*fetch)(void **, void **, void **);
  static void (*restore)(void *, void *, void *);
  if (!ensure) {
    release = (void (*)(int))python("PyGILState_Release");
    fetch = (void (*)(void **, void **, void **))python("PyErr_Fetch");
    restore = (void (*)(void *, void *, void *))python("PyErr_Restore");
    ensure = (int (*)(void))python("PyGILState_Ensure");
  }
  void *type, *value, *trace;
  int state = ensure();
  fetch(&type, &value, &trace);
  int64_t result = now(index, words);
  restore(type, value, trace);
  release(state);
  return result;
}

static int64_t call(int index, const void *words) {
  if (!target && !ended) {
    int failed = start();
    if (failed) return failed;
  }
  Target now = target;
  if (!now) return DEINITIALIZED;
  stay();
  int64_t result = enter(now, index, words);
  while (later) {
    Later one = *later;
    free(later);
    later = one.next;
    one.function(one.data);
  }
  return result;
}
