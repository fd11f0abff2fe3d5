"""`rx.io.gfile`: files and folders, under the names of `tf.io.gfile`."""

from replicax._src.files import FileStatistics as FileStatistics
from replicax._src.files import GFile as GFile
from replicax._src.files import copy as copy
from replicax._src.files import exists as exists
from replicax._src.files import get_registered_schemes as get_registered_schemes
from replicax._src.files import glob as glob
from replicax._src.files import isdir as isdir
from replicax._src.files import join as join
from replicax._src.files import listdir as listdir
from replicax._src.files import makedirs as makedirs
from replicax._src.files import mkdir as mkdir
from replicax._src.files import remove as remove
from replicax._src.files import rename as rename
from replicax._src.files import rmtree as rmtree
from replicax._src.files import stat as stat
from replicax._src.files import walk as walk
