/* Work on the rows of a batch in one pass over memory, without the interpreter lock.

   Where this could not be compiled, PyTorch and NumPy give the same results to the last bit: see data/datasets.py for
   standardising, and augment/noise.py for noise, which is SplitMix64 (Steele, Lea & Flood 2014) from a row's key, four table
   positions a word, sum, clamp to [0, 1]. */

#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#define FOR_EACH_CPU __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EACH_CPU
#endif

#define GOLDEN 0x9E3779B97F4A7C15ULL
#define BLOCK 256

static inline uint64_t mix(uint64_t word)
{
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9ULL;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBULL;
    return word ^ (word >> 31);
}

static inline float clamp(float value)
{
    value = value < 0.0f ? 0.0f : value; /* NaN stays NaN */
    return value > 1.0f ? 1.0f : value;
}

FOR_EACH_CPU
static void add_noise_to_row(float *row, Py_ssize_t values, uint64_t state, const float *table)
{
    uint64_t words[BLOCK];
    Py_ssize_t done = 0;
    while (done < values) {
        Py_ssize_t left = values - done;
        Py_ssize_t block = left < 4 * BLOCK ? left : 4 * BLOCK;
        float *place = row + done;
        for (int i = 0; i < BLOCK; i++)
            words[i] = mix(state + (uint64_t)(i + 1) * GOLDEN);
        state += BLOCK * GOLDEN;
        Py_ssize_t quarter = block / 4;
        for (Py_ssize_t i = 0; i < quarter; i++, place += 4) {
            /* All four are read before one is written: the compiler cannot know that they are different memory. */
            uint64_t word = words[i];
            float first = place[0] + table[word & 0xFFFF];
            float second = place[1] + table[(word >> 16) & 0xFFFF];
            float third = place[2] + table[(word >> 32) & 0xFFFF];
            float fourth = place[3] + table[word >> 48];
            place[0] = clamp(first);
            place[1] = clamp(second);
            place[2] = clamp(third);
            place[3] = clamp(fourth);
        }
        for (Py_ssize_t i = 0; i < block % 4; i++)
            place[i] = clamp(place[i] + table[(words[quarter] >> (16 * i)) & 0xFFFF]);
        done += block;
    }
}

FOR_EACH_CPU
static void standardize_row(float *restrict row, Py_ssize_t values, const float *restrict source, float mean,
                            float deviation)
{
    for (Py_ssize_t i = 0; i < values; i++)
        row[i] = (source[i] - mean) / deviation;
}

static PyObject *standardize_rows(PyObject *module, PyObject *arguments)
{
    unsigned long long batch, source, rows;
    Py_ssize_t values, count;
    float mean, deviation;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "KnKKnff", &batch, &values, &source, &rows, &count, &mean, &deviation))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < count; i++) {
        int64_t row = ((const int64_t *)(uintptr_t)rows)[i];
        standardize_row((float *)(uintptr_t)batch + i * values, values,
                        (const float *)(uintptr_t)source + row * values, mean, deviation);
    }
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

FOR_EACH_CPU
static void add_to_row(float *restrict row, Py_ssize_t values, const float *restrict source)
{
    for (Py_ssize_t i = 0; i < values; i++)
        row[i] = clamp(row[i] + source[i]);
}

static PyObject *add_noise(PyObject *module, PyObject *arguments)
{
    unsigned long long batch, rows, keys, table;
    Py_ssize_t values, count;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "KnKKnK", &batch, &values, &rows, &keys, &count, &table))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < count; i++) {
        int64_t row = ((const int64_t *)(uintptr_t)rows)[i];
        uint64_t key = ((const uint64_t *)(uintptr_t)keys)[i];
        add_noise_to_row((float *)(uintptr_t)batch + row * values, values, key, (const float *)(uintptr_t)table);
    }
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *add_rows(PyObject *module, PyObject *arguments)
{
    unsigned long long batch, rows, sources;
    Py_ssize_t values, count;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "KnKKn", &batch, &values, &rows, &sources, &count))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < count; i++) {
        int64_t row = ((const int64_t *)(uintptr_t)rows)[i];
        uint64_t source = ((const uint64_t *)(uintptr_t)sources)[i];
        add_to_row((float *)(uintptr_t)batch + row * values, values, (const float *)(uintptr_t)source);
    }
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"standardize_rows", standardize_rows, METH_VARARGS,
     "standardize_rows(batch, values, source, rows, count, mean, deviation): addresses of float32 (count, values),\n"
     "float32 (N, values) and int64 (count,); writes (source[rows] - mean) / deviation to the batch."},
    {"add_noise", add_noise, METH_VARARGS,
     "add_noise(batch, values, rows, keys, count, table): addresses of float32 (B, values), int64 (count,),\n"
     "uint64 (count,) and float32 (65536,); adds to the given rows in place."},
    {"add_rows", add_rows, METH_VARARGS,
     "add_rows(batch, values, rows, sources, count): addresses of float32 (B, values), int64 (count,) and of count\n"
     "addresses of float32 (values,); adds these to the given rows in place."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_native", "Work on the rows of a batch, compiled.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModule_Create(&definition);
}
