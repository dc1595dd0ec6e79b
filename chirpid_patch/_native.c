/* Functions that compute on the rows of a batch in one pass over memory, without the interpreter lock.

   If this file could not be compiled, PyTorch and NumPy compute the same results to the last bit. See
   datasets/standardized.py for standardising. See transforms/noise.py for noise: SplitMix64 (Steele, Lea & Flood 2014)
   generates 64-bit words from the key of a row. Each word contains four positions in a table of noise values. The values
   are added to the row, and the row is clamped to [0, 1]. */

#include <patchlevel.h>
#if PY_VERSION_HEX >= 0x030B0000 /* buffers belong to the stable ABI since Python 3.11 */
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#define FOR_EACH_CPU __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EACH_CPU
#endif

#define COLUMNS 65536
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
            /* Read all four values before writing any, because the compiler cannot know that the memory does not overlap. */
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

FOR_EACH_CPU
static void add_to_row(float *restrict row, Py_ssize_t values, const float *restrict source)
{
    for (Py_ssize_t i = 0; i < values; i++)
        row[i] = clamp(row[i] + source[i]);
}

/* Get the memory of an array. The array must be contiguous, of the given number type, and have at least `ndim` axes. */
static int take(PyObject *array, Py_buffer *view, const char *formats, Py_ssize_t itemsize, int ndim, int writable)
{
    if (PyObject_GetBuffer(array, view, PyBUF_STRIDES | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0)) < 0)
        return -1;
    if (view->itemsize != itemsize || strlen(view->format) != 1 || !strchr(formats, view->format[0]))
        PyErr_Format(PyExc_TypeError, "an array holds '%s', not one of '%s'", view->format, formats);
    else if (view->ndim < ndim || !PyBuffer_IsContiguous(view, 'C'))
        PyErr_SetString(PyExc_ValueError, "an array has too few axes or is not contiguous");
    else
        return 0;
    PyBuffer_Release(view);
    return -1;
}

#define FLOATS(array, view, ndim, writable) take(array, view, "f", 4, ndim, writable)
#define INDICES(array, view) take(array, view, "lq", 8, 1, 0)
#define WORDS(array, view) take(array, view, "LQ", 8, 1, 0)

/* Return how many numbers a row of an array has. */
static Py_ssize_t row_length(const Py_buffer *view)
{
    Py_ssize_t length = 1;
    for (int axis = 1; axis < view->ndim; axis++)
        length *= view->shape[axis];
    return length;
}

/* Return whether all `rows` are in the range of an array with `count` rows; if not, set an exception. */
static int are_rows(const Py_buffer *rows, Py_ssize_t count)
{
    const int64_t *numbers = rows->buf;
    for (Py_ssize_t i = 0; i < rows->len / 8; i++)
        if (numbers[i] < 0 || numbers[i] >= count) {
            PyErr_SetString(PyExc_IndexError, "a row is out of range");
            return 0;
        }
    return 1;
}

static PyObject *mismatch(void)
{
    PyErr_SetString(PyExc_ValueError, "the arrays do not fit each other");
    return NULL;
}

static PyObject *standardize_views(Py_buffer *batch, Py_buffer *source, Py_buffer *rows, float mean, float deviation)
{
    Py_ssize_t values = row_length(source), count = rows->len / 8;
    if (batch->shape[0] != count || row_length(batch) != values)
        return mismatch();
    if (!are_rows(rows, source->shape[0]))
        return NULL;
    float *target = batch->buf;
    const float *from = source->buf;
    const int64_t *numbers = rows->buf;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < count; i++)
        standardize_row(target + i * values, values, from + numbers[i] * values, mean, deviation);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *standardize_rows(PyObject *module, PyObject *arguments)
{
    PyObject *arrays[3], *result = NULL;
    Py_buffer batch, source, rows;
    float mean, deviation;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OOOff", &arrays[0], &arrays[1], &arrays[2], &mean, &deviation))
        return NULL;
    if (FLOATS(arrays[0], &batch, 1, 1) < 0)
        return NULL;
    if (FLOATS(arrays[1], &source, 1, 0) == 0) {
        if (INDICES(arrays[2], &rows) == 0) {
            result = standardize_views(&batch, &source, &rows, mean, deviation);
            PyBuffer_Release(&rows);
        }
        PyBuffer_Release(&source);
    }
    PyBuffer_Release(&batch);
    return result;
}

/* Add noise to rows of a batch: values of a table, which the key of a row selects, or slices of a pool. */
static PyObject *add_views(Py_buffer *batch, Py_buffer *rows, Py_buffer *words, Py_buffer *numbers, int keyed)
{
    Py_ssize_t values = row_length(batch), count = rows->len / 8, length = numbers->len / 4;
    if (words->len != rows->len || (keyed ? length != COLUMNS : length < values))
        return mismatch();
    if (!are_rows(rows, batch->shape[0]))
        return NULL;
    const int64_t *places = rows->buf;
    const uint64_t *word = words->buf;
    for (Py_ssize_t i = 0; !keyed && i < count; i++)
        if (word[i] > (uint64_t)(length - values))
            return mismatch();
    float *target = batch->buf;
    const float *from = numbers->buf;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < count; i++) {
        float *row = target + places[i] * values;
        if (keyed)
            add_noise_to_row(row, values, word[i], from);
        else
            add_to_row(row, values, from + word[i]);
    }
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *add(PyObject *arguments, int keyed)
{
    PyObject *arrays[4], *result = NULL;
    Py_buffer batch, rows, words, numbers;
    if (!PyArg_ParseTuple(arguments, "OOOO", &arrays[0], &arrays[1], &arrays[2], &arrays[3]))
        return NULL;
    if (FLOATS(arrays[0], &batch, 1, 1) < 0)
        return NULL;
    if (INDICES(arrays[1], &rows) == 0) {
        if (WORDS(arrays[2], &words) == 0) {
            if (FLOATS(arrays[3], &numbers, 1, 0) == 0) {
                result = add_views(&batch, &rows, &words, &numbers, keyed);
                PyBuffer_Release(&numbers);
            }
            PyBuffer_Release(&words);
        }
        PyBuffer_Release(&rows);
    }
    PyBuffer_Release(&batch);
    return result;
}

static PyObject *add_noise(PyObject *module, PyObject *arguments)
{
    (void)module;
    return add(arguments, 1);
}

static PyObject *add_rows(PyObject *module, PyObject *arguments)
{
    (void)module;
    return add(arguments, 0);
}

static PyMethodDef methods[] = {
    {"standardize_rows", standardize_rows, METH_VARARGS,
     "standardize_rows(batch, source, rows, mean, deviation): arrays of float32 (B, …) and (N, …) and of int64 (B,);\n"
     "writes (source[rows] - mean) / deviation to the batch."},
    {"add_noise", add_noise, METH_VARARGS,
     "add_noise(batch, rows, keys, table): arrays of float32 (B, …), int64 (n,), uint64 (n,) and float32 (65536,);\n"
     "adds to the given rows in place, and clamps."},
    {"add_rows", add_rows, METH_VARARGS,
     "add_rows(batch, rows, starts, pool): arrays of float32 (B, …), int64 (n,), uint64 (n,) and float32 (M,);\n"
     "adds to each row the stretch of the pool from its start on, in place, and clamps."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_native", "Work on the rows of a batch, compiled.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModule_Create(&definition);
}
