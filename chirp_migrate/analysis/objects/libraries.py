"""List library calls with known results: objects that store their arguments, and objects that cannot be pickled.

The result of any other library call is an unknown object. No rule reports an unknown object.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from chirp_migrate.analysis.objects.abstract_objects import AbstractObject, Instance, UnpicklableKind

#: Classes and functions whose result refers to all their arguments.
KEEPS = re.compile(
    r"functools\.partial(method)?|itertools\.\w+|builtins\.(map|filter|zip|enumerate|reversed|slice|bound_method)"
    r"|torch\.utils\.data\.(\w+\.)*([A-Z]\w*|random_split)"
    r"|torch\.nn\.(\w+\.)*[A-Z]\w*"
    r"|(torchvision|torchaudio|albumentations|kornia|monai|torchio|audiomentations|torch_audiomentations)\.([\w.]+\.)?[A-Z]\w*"
    r"|chirpid_patch\.([\w.]+\.)?[A-Z]\w*|argparse\.Namespace|types\.SimpleNamespace|collections\.(ChainMap|UserDict|UserList)"
    r"|operator\.methodcaller"
)
#: Functions that return a tensor or array of numbers.
MAKES_ROWS = re.compile(
    r"torch\.(tensor|as_tensor|from_numpy|stack|cat|concat|zeros|ones|full|empty|arange|linspace|eye|rand|randn|randint|randperm"
    r"|(Float|Double|Half|Byte|Char|Short|Int|Long|Bool)?Tensor)"
    r"|numpy\.(zeros|ones|empty|arange|linspace|eye|random\.(rand|randn|random|randint|normal|uniform|standard_normal|permutation))"
)
#: Methods of tensors and arrays of numbers that return another tensor or array of numbers on the same device.
STAYS_ROWS = re.compile(
    r"float|double|half|bool|long|int|astype|numpy|copy|clone|detach|contiguous|reshape|view|flatten|permute|transpose|swapaxes"
    r"|(un)?squeeze"
)
#: Functions that return their first argument.
PASSES_ON = re.compile(
    r"contextlib\.closing|typing\.cast|tqdm(\.\w+)*\.\w+|functools\.(lru_cache|cache|total_ordering)"
    r"|torch\.(no_grad|inference_mode|enable_grad)"
)
#: Decorators after which workers can still import the decorated function by its name.
TRANSPARENT = re.compile(
    r"torch\.(no_grad|inference_mode|enable_grad)|typing\.\w+|typing_extensions\.\w+|abc\.\w+|functools\.(total_ordering|cached_property)"
)
#: Modules of libraries that programs import from the package of the module, as in ``from torch import nn``.
MODULES = re.compile(
    r"os\.path|importlib\.\w+|xml\.etree\.ElementTree|concurrent\.futures|scipy\.(signal|ndimage|stats|io|interpolate)"
    r"|torch\.(nn|optim|cuda|distributed|fft|linalg|backends)|torch\.nn\.(functional|init|utils)|torch\.utils\.data"
    r"|torchvision\.(transforms|datasets|models|io)(\.(v2|functional))*|torchaudio\.(transforms|functional|datasets)|numpy\.(random|linalg|fft)"
    r"|PIL\.(Image|ImageOps|ImageFilter|ImageEnhance|ImageDraw)|matplotlib\.pyplot|skimage\.\w+|sklearn\.\w+"
)
#: Functions that only read attributes of their argument, so a call with a loader starts no workers.
PLAIN_CALLABLE = re.compile(r"builtins\.(len|print|isinstance|type|id|repr|hasattr|bool|str|callable)")


@dataclass(frozen=True)
class LibraryCallResult:
    """An object that a library call returns and that cannot be pickled.

    Attributes:
        kind: the kind of object.
        part: name of the part of the object that the call returns, such as ``file``; "" if the kind has no parts.
    """

    kind: UnpicklableKind
    part: str = ""


_THREADING = r"threading\.(Lock|RLock|Condition|(Bounded)?Semaphore|Event|Barrier|local)|_thread\.(allocate_lock|RLock)"
_MAKERS: tuple[tuple[re.Pattern[str], LibraryCallResult], ...] = tuple(
    (re.compile(names), made)
    for names, made in (
        (
            r"(builtins|_?io|gzip|bz2|lzma|codecs|os|tarfile|wave|shelve|dbm|aifc)\.open|os\.(fdopen|popen)|io\.(FileIO|TextIOWrapper|Buffered\w+)"
            r"|tempfile\.(Named|Spooled)?TemporaryFile|gzip\.GzipFile|bz2\.BZ2File|lzma\.LZMAFile|zipfile\.ZipFile"
            r"|tarfile\.TarFile(\.\w*open)?|_?csv\.(reader|writer|DictReader|DictWriter)|cv2\.(VideoCapture|VideoWriter|CascadeClassifier)"
            r"|av\.open|soundfile\.SoundFile|rasterio\.open|decord\.VideoReader|openslide\.(OpenSlide|open_slide)|pysam\.\w+File"
            r"|sys\.(stdin|stdout|stderr)|imageio\.get_(reader|writer)|tokenize\.open|fileinput\.input|os\.scandir",
            LibraryCallResult(UnpicklableKind.FILE, "file"),
        ),
        (r"h5py\.File|tables\.(open_file|File)", LibraryCallResult(UnpicklableKind.HDF5, "file")),
        (r"netCDF4\.(MF)?Dataset|scipy\.io\.netcdf_file", LibraryCallResult(UnpicklableKind.NETCDF, "file")),
        (r"lmdb\.(open|Environment)", LibraryCallResult(UnpicklableKind.LMDB, "environment")),
        (r"mmap\.mmap", LibraryCallResult(UnpicklableKind.MMAP)),
        (r"builtins\.memoryview", LibraryCallResult(UnpicklableKind.MMAP)),
        (
            r"sqlite3\.(connect|Connection)|socket\.(socket|create_connection|create_server|fromfd)|psycopg2?\.connect"
            r"|pymysql\.connect|mysql\.connector\.connect|pymongo\.MongoClient|http\.client\.HTTPS?Connection|ftplib\.FTP|smtplib\.SMTP"
            r"|duckdb\.connect|multiprocessing\.connection\.Client|urllib\.request\.urlopen|ssl\.(SSLContext|create_default_context)",
            LibraryCallResult(UnpicklableKind.CONNECTION, "connection"),
        ),
        (_THREADING, LibraryCallResult(UnpicklableKind.LOCK)),
        (
            r"queue\.(Queue|LifoQueue|PriorityQueue|SimpleQueue)|asyncio\.(\w*Queue|Lock|Event|Semaphore)",
            LibraryCallResult(UnpicklableKind.QUEUE),
        ),
        (
            r"threading\.(Thread|Timer)|concurrent\.futures\.((thread|process)\.)?(Thread|Process)PoolExecutor"
            r"|multiprocessing\.(pool\.(Thread)?Pool|dummy\.Pool|Pool|Process)|subprocess\.Popen",
            LibraryCallResult(UnpicklableKind.THREADS),
        ),
        (r"glob\.iglob|os\.(walk|fwalk)|re\.finditer", LibraryCallResult(UnpicklableKind.GENERATOR)),
        (
            r"weakref\.(ref|proxy|finalize|Weak\w+|WeakMethod)|struct\.Struct|hashlib\.(new|md5|sha\w+|blake2\w)|zlib\.(de)?compressobj"
            r"|re\.(match|search|fullmatch)|types\.MappingProxyType|logging\.(handlers\.)?\w*Handler|contextvars\.ContextVar|select\.\w+"
            r"|_thread\.\w+|sys\._getframe|inspect\.currentframe|contextlib\.ExitStack",
            LibraryCallResult(UnpicklableKind.HANDLER),
        ),
    )
)

#: Maps the attributes and methods of a kind of object to the parts that they return. ``[]`` is an index by a string.
_PARTS: dict[tuple[UnpicklableKind, str], dict[str, str]] = {
    (UnpicklableKind.HDF5, "file"): {
        **dict.fromkeys(("[]", "get()", "create_dataset()", "get_node()"), "variable"),
        **dict.fromkeys(("root", "require_group()", "create_group()"), "file"),
        **dict.fromkeys(("keys()", "values()", "items()"), "view"),
        "attrs": "attributes",
    },
    (UnpicklableKind.HDF5, "variable"): {"[]": "variable", "attrs": "attributes"},
    (UnpicklableKind.NETCDF, "file"): {"[]": "variable", "variables": "variables", "groups": "variables"},
    (UnpicklableKind.NETCDF, "variables"): {"[]": "variable", "get()": "variable"},
    (UnpicklableKind.LMDB, "environment"): {"begin()": "transaction", "open_db()": "database"},
    (UnpicklableKind.LMDB, "transaction"): {"cursor()": "cursor"},
    (UnpicklableKind.CONNECTION, "connection"): {
        **dict.fromkeys(("cursor()", "execute()"), "cursor"),
        **dict.fromkeys(("makefile()", "getresponse()"), "file"),
        "accept()": "connection",
    },
    (UnpicklableKind.CONNECTION, "cursor"): {"execute()": "cursor"},
    (UnpicklableKind.FILE, "file"): dict.fromkeys(("open()", "extractfile()", "buffer", "detach()"), "file"),
}


@lru_cache(maxsize=4096)
def is_numeric_array(thing: AbstractObject) -> bool:
    """Return whether an object is a tensor or array of numbers."""
    return isinstance(thing, Instance) and isinstance(thing.cls, str) and MAKES_ROWS.fullmatch(thing.cls) is not None


@lru_cache(maxsize=4096)
def unpicklable_result_of_call(name: str) -> LibraryCallResult | None:
    """Return the result of calling a library's function if the result cannot be pickled; None for any other result."""
    return next((made for names, made in _MAKERS if names.fullmatch(name)), None)


def unpicklable_kind_of_class(class_name: str) -> UnpicklableKind | None:
    """Return the kind of the unpicklable objects of a library's class; None if the objects may be picklable."""
    made = unpicklable_result_of_call(class_name)
    return None if made is None else made.kind


def unpicklable_part_of(kind: UnpicklableKind, part: str, access: str) -> str:
    """Return which part of a library's object an attribute, method or index returns; "" if the part is not known.

    For example, ``file["data"]`` for an HDF5 file returns the part ``variable``.

    Args:
        kind: the kind of the object.
        part: the value of :attr:`LibraryCallResult.part` for the object, such as ``file``.
        access: the name of an attribute, the name of a called method with ``()``, or ``[]`` for an index.
    """
    return _PARTS.get((kind, part), {}).get(access, "")
