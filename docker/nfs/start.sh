#!/bin/sh
# Serve a folder by NFSv4, which needs one port.
set -eu

export_folder=${EXPORT_FOLDER:-/export}

# The agents' machines work as the user that their image names.
chmod 1777 "$export_folder"
mkdir -p /run/ganesha /run/rpcbind /var/lib/nfs/ganesha
cat >/run/ganesha/ganesha.conf <<END
NFS_CORE_PARAM { Protocols = 4; NFS_Port = 2049; Enable_RQUOTA = false; mount_path_pseudo = true; }
NFSV4 { Minor_Versions = 1, 2; RecoveryBackend = fs; Lease_Lifetime = 20; Grace_Period = 20; }
LOG { Default_Log_Level = EVENT; }
EXPORT {
  Export_Id = 1; Path = $export_folder; Pseudo = /export; Protocols = 4; Transports = TCP;
  Access_Type = RW; Squash = No_Root_Squash; Sectype = sys; FSAL { Name = VFS; }
}
END
# Ganesha does not start without a portmapper, although no client asks it.
rpcbind -f &
until [ -S /run/rpcbind.sock ]; do
    kill -0 $!
    sleep 0.1
done
exec ganesha.nfsd -F -f /run/ganesha/ganesha.conf -L /dev/stdout -p /run/ganesha/ganesha.pid
