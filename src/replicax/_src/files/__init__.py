"""Files and folders by TensorFlow's names, on this machine and, through fsspec, on others."""

from replicax._src.files._file_system import FileStatistics as FileStatistics
from replicax._src.files._gfile import copy as copy
from replicax._src.files._gfile import exists as exists
from replicax._src.files._gfile import get_registered_schemes as get_registered_schemes
from replicax._src.files._gfile import glob as glob
from replicax._src.files._gfile import isdir as isdir
from replicax._src.files._gfile import join as join
from replicax._src.files._gfile import listdir as listdir
from replicax._src.files._gfile import makedirs as makedirs
from replicax._src.files._gfile import mkdir as mkdir
from replicax._src.files._gfile import read_file as read_file
from replicax._src.files._gfile import remove as remove
from replicax._src.files._gfile import rename as rename
from replicax._src.files._gfile import rmtree as rmtree
from replicax._src.files._gfile import stat as stat
from replicax._src.files._gfile import walk as walk
from replicax._src.files._gfile import write_file as write_file
from replicax._src.files._open_file import GFile as GFile
